// Package narrate says in one line of words what an event records, for people who
// read a timeline: on a terminal, in a browser or in a chat with a model. It also
// has the words for amounts that such lines need.
//
// What a log holds is hostile text. [Event] returns it as it is; whoever shows it
// makes it [Printable], and cuts it, first.
package narrate

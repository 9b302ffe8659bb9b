// Package display writes amounts, and texts that tools and servers chose, for people. Such
// texts are hostile: [Printable] and its like leave nothing in them that a terminal obeys.
package display

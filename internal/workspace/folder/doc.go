// Package folder reads a folder of this machine as a tree of package workspace, and writes the
// difference between two trees back to it.
//
// [Open] opens a folder. [Folder.Import] reads it: it never leaves the folder, and opens nothing but
// regular files and folders. [Folder.WriteBack] changes it from one tree to another, or leaves it as
// it is: it refuses if a path that it would touch is not what was imported.
//
// # What is lost if the process dies
//
// Nothing. A write-back works in this order:
//
//  1. It writes the list of its steps, with digests, into a journal outside of the folder.
//  2. It writes all new contents into a folder of a random name inside FOLDER, the staging folder.
//  3. It compares all paths that it is to touch with what was imported. Then the journal says "moving".
//  4. For each path it moves what is there into the staging folder, compares the moved content
//     again, and moves the new content to the path, if there is still nothing.
//  5. The journal says "done". It deletes the old contents, which are in the staging folder, and the journal.
//
// Everything is synced before the journal says more. What fails before step 5 is undone, by the
// call itself or, after a crash, by [Folder.Recover]. To undo is to move paths back, each compared
// first: what someone has changed since stays as it is, and is reported. A content is deleted only
// from the staging folder, and only if it still has the digest that the journal gives.
package folder

// Package folder has a folder of this machine as a tree of package workspace.
//
//   - [Folder.Import] (import.go) reads it. It never leaves the folder, and opens nothing but regular
//     files and folders.
//   - [Folder.WriteBack] (writeback.go) makes the changes from that tree to another one, all or none,
//     and [Folder.Recover] ends what a process that died has left.
package folder

// Package folder reads a folder of this machine as a tree of package workspace.
//
// [Folder.Import] never leaves the folder, and opens nothing but regular files and folders.
package folder

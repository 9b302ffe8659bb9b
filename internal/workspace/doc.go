// Package workspace describes trees of files as data. A tree is named by one digest: the BLAKE3-256
// of its root folder. A folder's content is the sorted list of its entries in canonical CBOR, and
// each entry has the digest of its own content, so the root's digest names everything below it.
// Times, owners and modes are not part of a tree.
//
// [Walk] lists a tree. It reads folders by digest through a [Get] and is bounded, so a tree that a
// hostile program made can be given to it. [Diff] compares two trees. spec/workspace.md is the format.
// Package folder, below this one, has the trees of folders of this machine.
package workspace

// Package pgtest gives tests a PostgreSQL of their own.
//
// The server programs are the machine's own, found through PATH or where Debian
// puts them; without them, the test is skipped. A server has its data and its
// socket in a temporary directory and listens on nothing else. A process beside
// the tests, its keeper, holds the other end of a pipe: when the tests end, in
// whatever way, it stops the server and removes the directory.
//
// Most tests want [Database]: one server serves all tests of a binary, and each
// test has a fresh database in it. A test that breaks the server calls [Start]. A
// program that measures calls [New].
package pgtest

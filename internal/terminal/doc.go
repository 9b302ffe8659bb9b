// Package terminal prints for people: escaped, so that no text of a tool or a database obeys on a
// terminal, styled, and as wide as the terminal is. To files and pipes it prints the same without style.
package terminal

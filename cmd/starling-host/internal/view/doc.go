// Package view prints for people what commands found: runs, hosts, verdicts and modules. Each
// function takes the value that the command prints as JSON with -o json.
package view

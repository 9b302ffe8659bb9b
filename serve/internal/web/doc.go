// Package web has what servers share: keys of requests, the origins of pages, streams of server-sent events,
// and serving until a context ends.
package web

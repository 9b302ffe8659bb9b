// Package fairtest compares the duration of calls beside other load with their duration
// alone.
package fairtest

// Package image keeps the memory that every call of a module begins with, and
// puts a used memory back to it.
//
// An [Image] is read-only: nothing can change it any more, the host included. A
// [Memory] is one instance's view of it, private and copied page by page as the
// guest writes. [Memory.Reset] makes a sandbox for every call as cheap as one for
// all: a new view would make every page fault again, so it asks the kernel for
// the written pages and copies those from the image, a dozen of them after a call
// of a Go tool.
//
// # How the written pages are found
//
// There is a ladder of methods; [Open] takes the best one that works on this
// machine, and [Store.Report] explains why the better ones do not.
//
//   - [Scan]: the ioctl PAGEMAP_SCAN (Linux 6.7) lists the private pages of a
//     range, at a price that hardly depends on the size of the range.
//   - [Compare]: every page is compared with the image's; a large memory is
//     dropped instead, and its pages fault again.
//   - [Fresh]: no memory is used twice. The image is an ordinary byte slice, from
//     which every instance is filled. It works everywhere.
//
// A page is private when it is not the file's any more and not the kernel's
// page of zeros: present, or swapped out. Swapped pages have been written too,
// which is easy to forget and impossible to see in a short test.
//
// Nothing here outlives the process: if it dies, the kernel takes the memory.
package image

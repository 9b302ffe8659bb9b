// Package runjs has the module of the tool run_js, which runs programs in JavaScript. It is
// QuickJS (LICENSE.quickjs) with guest-sdk/js/runjs/run_js.js and sucrase (LICENSE.sucrase);
// build.sh makes it.
package runjs

import _ "embed"

// Name is the name of the tool, and the reference to its module.
const Name = "run_js"

// Module is the module.
//
//go:embed run_js.wasm
var Module []byte

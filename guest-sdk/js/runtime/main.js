// What adapter.wat evaluates first: the function that takes a script and returns what
// answers calls. A script is a function of what it can import, and returns the start-up
// code of a tool, its name, the lines of its files, and the imports of the module.

import { placed } from "./fetch.js";
import { fs } from "./files.js";
import { listen } from "./host.js";
import { plain } from "./json.js";
import { load } from "./module.js";
import * as starling from "./starling.js";
import "./subtle.js";
import { callTool } from "./tools.js";

export default (script) => load(script({ ...starling, callTool, fs, listen, placed, plain }));

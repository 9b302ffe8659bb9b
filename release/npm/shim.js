#!/usr/bin/env node
// Starts the program of this platform. install.js puts the program itself here where it can.
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

let program;
try {
  program = require("../platform.js").program();
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
process.on("SIGINT", () => {}); // a terminal sends it to the program, too
child.on("error", (error) => {
  console.error(`error: ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));

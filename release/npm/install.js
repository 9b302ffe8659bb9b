// Puts the program in the place of the shim, so that no Node runs beside it. Only npm starts what
// is there without Node, and only where a program needs no .exe; elsewhere the shim stays.
const fs = require("node:fs");
const path = require("node:path");

if (process.platform !== "win32" && (process.env.npm_config_user_agent || "").startsWith("npm/")) {
  const shim = path.join(__dirname, "bin", "starling-host");
  try {
    const program = require("./platform.js").program();
    fs.copyFileSync(program, shim + ".new", fs.constants.COPYFILE_FICLONE);
    fs.chmodSync(shim + ".new", 0o755);
    fs.renameSync(shim + ".new", shim);
  } catch (error) {
    fs.rmSync(shim + ".new", { force: true });
    console.error(`starling-host is started through Node: ${error.message}`);
  }
}

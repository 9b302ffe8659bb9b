// Finds the program, which is in the package for this platform.
const name = `@starling-host/${process.platform}-${process.arch}`;

exports.program = () => {
  try {
    return require.resolve(`${name}/starling-host${process.platform === "win32" ? ".exe" : ""}`);
  } catch {
    throw new Error(`${name} is not installed: there is no program for this platform, or optional dependencies were left out\nhint: npm install --include=optional starling-host`);
  }
};

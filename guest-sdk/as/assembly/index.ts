export { Json, Kind } from "./json";
export { Request, Response, escape, get, post } from "./http";
export { log, now, random } from "./host";
export { Tool, cancel, context, discard, fail, failure, snooze, tool, transient } from "./tool";

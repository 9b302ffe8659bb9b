// The transform of guest-sdk/as/examples with Extism's kit, which has no JSON: that is the SDK's.
import { Host } from "./kit/pdk";
import { Json } from "./sdk/json";
import { transform } from "./tool";

export function run(): i32 {
  Host.outputString(transform(Json.parse(Host.inputString())!).toString());
  return 0;
}

export function abort(message: string | null, file: string | null, line: u32, column: u32): void { unreachable(); }

import { Json, discard, escape, get, tool, transient } from "../sdk";
export * from "../sdk/exports";

function lookup(input: Json): Json {
  const id = input.text("id");
  const response = get(input.text("base_url") + "/customers/" + escape(id))
    .header("Authorization", "Bearer {{secret:CUSTOMER_TOKEN}}")
    .effect("customer/" + id)
    .retries(1)
    .send();
  if (response.failed) return response.failure;
  if (response.status == 404) return discard("there is no customer " + id);
  if (response.status != 200) return transient("the service answers " + response.status.toString());
  const customer = response.json();
  return Json.object().set("id", customer.get("id")).set("name", customer.get("name")).set("plan", customer.get("plan"));
}

tool("lookup", "Looks up a customer by id.", lookup)
  .takes("id", "string")
  .takes("base_url", "string", "The address of the service")
  .gives("id", "string")
  .gives("name", "string")
  .gives("plan", "string")
  .idempotent();

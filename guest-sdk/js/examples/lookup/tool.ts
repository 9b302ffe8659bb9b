// Looks up a customer over HTTP, with a token that only the host knows.
import { discard, tool, transient } from "starling";

export default tool({
  name: "lookup",
  description: "Looks up a customer by id.",
  inputSchema: {
    type: "object",
    properties: {
      id: { type: "string", description: "Digits, such as 17" },
      base_url: { type: "string", description: "Address of the service" },
    },
    required: ["id", "base_url"],
  },
  idempotent: true,

  async execute({ id, base_url }) {
    const request = () => fetch(`${base_url}/customers/${encodeURIComponent(id)}`, {
      headers: { Accept: "application/json", Authorization: "Bearer {{secret:CUSTOMER_TOKEN}}", "Starling-Effect": `customer/${id}` },
    });
    let response = await request();
    if (response.status === 503) response = await request();
    if (response.status === 404) throw discard(`there is no customer ${id}`);
    if (response.status !== 200) throw transient(`the service answers ${response.status}`);
    const customer = await response.json();
    return { id: customer.id, name: customer.name, plan: customer.plan };
  },
});

// Looks up a customer over HTTP.
import { discard, transient } from "starling";

type Input = { id: string; base_url: string };

export default {
  name: "customer",
  description: "Looks up a customer by id.",
  inputSchema: {
    type: "object",
    properties: {
      id: { type: "string", pattern: "^[0-9]+$" },
      base_url: { type: "string", description: "Address of the service" },
    },
    required: ["id", "base_url"],
  },
  idempotent: true,

  async execute({ id, base_url }: Input) {
    const response = await fetch(new URL(`/customers/${id}`, base_url), {
      headers: { Accept: "application/json", "Starling-Effect": `customer/${id}` },
    });
    if (response.status === 404) throw discard(`there is no customer ${id}`);
    if (!response.ok) throw transient(`the service answers ${response.status}`);
    const { name } = await response.json();
    return { id, name };
  },
};

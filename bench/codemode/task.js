// The program that the model writes in code mode: ten calls, each with what the one before returned.
const read = async (path) => (await tools.fs_read_text_file({ path })).content;

const files = (await tools.fs_list_directory({ path: "orders" })).content.split("\n").map((line) => line.replace("[FILE] ", ""));
const newest = files.sort().at(-1);
const totals = {};
for (const row of (await read(`orders/${newest}`)).trim().split("\n").slice(1)) {
  const [, customer, cents] = row.split(",");
  totals[customer] = (totals[customer] ?? 0) + Number(cents);
}
const best = Object.keys(totals).sort((a, b) => totals[b] - totals[a])[0];
const customer = JSON.parse(await read(`customers/${best}.json`));
const group = JSON.parse(await read(`groups/${customer.group}.json`));
const region = JSON.parse(await read(`regions/${group.region}.json`));
const sum = await tools["ev_get-sum"]({ a: totals[best], b: region.shipping });
const due = Number(sum.content[0].text.match(/is (\d+)/)[1]);
await tools.fs_create_directory({ path: `reports/${group.region}` });
const path = `reports/${group.region}/${best}.md`;
await tools.fs_write_file({ path, content: `${customer.name} is to pay ${due} cents.\n` });
const report = await read(path);
await tools.mem_create_entities({ entities: [{ name: customer.name, entityType: "customer", observations: [report.trim()] }] });
return report;

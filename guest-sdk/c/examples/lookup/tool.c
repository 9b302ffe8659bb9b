#include "sdk/starling.h"

static const st_field input[] = {{"id", "string"}, {"base_url", "string", "The address of the service"}, {0}};
static const st_field output[] = {{"id", "string"}, {"name", "string"}, {"plan", "string"}, {0}};

static st_json *lookup(const st_json *in) {
	const char *id = st_text(in, "id");
	st_request *request = st_get_request(st_print("%s/customers/%s", st_text(in, "base_url"), st_escape(id)));
	st_header(request, "Authorization", "Bearer {{secret:CUSTOMER_TOKEN}}");
	st_header(request, "Starling-Effect", st_print("customer/%s", id));
	request->retries = 1;
	st_response response = st_send(request);
	if (response.failure) return response.failure;
	if (response.status == 404) return st_discard(st_print("there is no customer %s", id));
	if (response.status != 200) return st_transient(st_print("the service answers %d", response.status));

	const st_json *customer = st_response_json(&response);
	st_json *out = st_object();
	for (const st_field *f = output; f->name; f++) st_set(out, f->name, st_get(customer, f->name));
	return out;
}

STARLING_TOOLS({"lookup", "Looks up a customer by id.", lookup, input, output, .idempotent = 1})

use starling_tool::{http, object, tools, Error};

object! {
    struct Input {
        id: String,
        /// The address of the service
        base_url: String,
    }
    struct Customer {
        id: String,
        name: String,
        plan: String,
    }
}

fn lookup(input: Input) -> Result<Customer, Error> {
    let response = http::get(format!("{}/customers/{}", input.base_url, http::escape(&input.id)))
        .header("Authorization", "Bearer {{secret:CUSTOMER_TOKEN}}")
        .effect(format!("customer/{}", input.id))
        .retries(1)
        .send()?;
    match response.status {
        200 => response.json(),
        404 => Err(Error::discard(format!("there is no customer {}", input.id))),
        status => Err(Error::transient(format!("the service answers {}", status))),
    }
}

tools! {
    /// Looks up a customer by id.
    lookup { idempotent: true },
}

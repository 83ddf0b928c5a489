//! The control interface as an OpenAPI 3.1 document, made from the types that carry it.
//!
//! What must stay true: a call is in the document because it has a route, and looks there as serde
//! reads and writes it. A request names each field that it knows and allows no other.
//! Source: OpenAPI Specification 3.1.1; JSON Schema draft 2020-12.

use crate::{ApiError, Call, Method};
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Where the daemon serves it.
pub const OPENAPI_PATH: &str = "/v1/openapi.json";

const DESCRIPTION: &str = "\
HTTP/1.1 with JSON over the Unix socket of `ashlar serve`. The owner of the socket and its group \
may use it. A request with an unknown field is refused, and nothing is done. Answers may gain \
fields. Every refusal is an `ApiError`; its `code` keeps its meaning.";

/// Paths of an OpenAPI document, and the schemas that they name.
pub struct Document {
    generator: SchemaGenerator,
    paths: Map<String, Value>,
}

impl Document {
    /// A document without paths.
    #[must_use]
    pub fn new() -> Document {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
            settings.transforms.push(Box::new(Names));
        });
        Document { generator: settings.into_generator(), paths: Map::new() }
    }

    /// Adds a call.
    pub fn call<C: Call>(&mut self) {
        let request = self.generator.subschema_for::<C>();
        let answer = self.generator.subschema_for::<C::Answer>();
        let mut operation = self.operation(C::PATH, "application/json", answer.to_value());
        let summary = self.description::<C>();
        operation["summary"] =
            summary.split_once(". ").map_or(&*summary, |(first, _)| first).into();
        operation["description"] = summary.into();
        let method = match C::METHOD {
            Method::Get => "get",
            Method::Post => {
                let content = json!({ "application/json": { "schema": request } });
                operation["requestBody"] = json!({ "required": true, "content": content });
                "post"
            }
        };
        self.paths.insert(C::PATH.to_owned(), json!({ method: operation }));
    }

    /// Adds a path that answers with text: one `line` after the other, each as its type says.
    pub fn lines<Line: JsonSchema>(&mut self, path: &str, summary: &str) {
        let line = self.generator.subschema_for::<Line>().to_value();
        self.text(path, summary, "application/x-ndjson", line);
    }

    /// Adds a path that answers with text of this kind.
    pub fn plain(&mut self, path: &str, summary: &str, kind: &str) {
        self.text(path, summary, kind, json!({ "type": "string" }));
    }

    fn text(&mut self, path: &str, summary: &str, kind: &str, schema: Value) {
        let mut operation = self.operation(path, kind, schema);
        operation["summary"] = summary.into();
        self.paths.insert(path.to_owned(), json!({ "get": operation }));
    }

    fn operation(&mut self, path: &str, kind: &str, answer: Value) -> Value {
        let refusal = self.generator.subschema_for::<ApiError>();
        let words: Vec<&str> = path.split(['/', '.', '-']).skip(2).collect();
        json!({
            "operationId": words.join("_"),
            "tags": [words[0]],
            "responses": {
                "200": { "description": "Done.", "content": { kind: { "schema": answer } } },
                "default": {
                    "description": "Refused.",
                    "content": { "application/json": { "schema": refusal } },
                },
            },
        })
    }

    /// What the type's own words say.
    fn description<T: JsonSchema>(&mut self) -> String {
        let name = T::schema_name();
        let schema = self.generator.definitions().get(&*name);
        let words = schema.and_then(|schema| schema.get("description")).and_then(Value::as_str);
        words.unwrap_or_default().replace('\n', " ")
    }

    /// The whole document.
    #[must_use]
    pub fn finish(mut self) -> Value {
        json!({
            "openapi": "3.1.1",
            "info": {
                "title": "Ashlar control interface",
                "version": "1",
                "description": DESCRIPTION,
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            },
            "servers": [{ "url": "http://localhost", "description": "the control socket" }],
            "paths": self.paths,
            "components": { "schemas": self.generator.take_definitions(true) },
        })
    }
}

impl Default for Document {
    fn default() -> Document {
        Document::new()
    }
}

/// An enum of plain names becomes a list of names: generators of clients know no `oneOf` of
/// constants.
#[derive(Clone)]
struct Names;

impl Transform for Names {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(Value::Array(options)) = schema.get("oneOf") else { return };
        let name = |option: &Value| Some(option.get("const")?.as_str()?.to_owned());
        let Some(names) = options.iter().map(name).collect::<Option<Vec<String>>>() else { return };
        let words =
            |option: &Value| option.get("description").and_then(Value::as_str).map(one_line);
        let each = names.iter().zip(options);
        let each =
            each.filter_map(|(name, option)| Some(format!("- `{name}`: {}", words(option)?)));
        let own = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let described = format!("{own}\n\n{}", each.collect::<Vec<_>>().join("\n"));
        schema.remove("oneOf");
        schema.insert("type".to_owned(), "string".into());
        schema.insert("enum".to_owned(), names.into());
        schema.insert("description".to_owned(), described.trim().into());
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

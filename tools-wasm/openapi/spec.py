TEXT = r'''{
 "openapi": "3.0.3",
 "info": {
  "title": "Bookshop",
  "version": "1"
 },
 "servers": [
  {
   "url": "https://{region}.example.com/v1",
   "variables": {
    "region": {
     "default": "api"
    }
   }
  }
 ],
 "security": [
  {
   "shop_token": []
  }
 ],
 "paths": {
  "/books": {
   "get": {
    "operationId": "listBooks",
    "summary": "Lists books.",
    "parameters": [
     {
      "name": "tag",
      "in": "query",
      "description": "Only with all of these tags",
      "schema": {
       "type": "array",
       "items": {
        "type": "string"
       }
      }
     },
     {
      "name": "in-stock",
      "in": "query",
      "schema": {
       "type": "boolean"
      }
     },
     {
      "name": "limit",
      "in": "query",
      "schema": {
       "type": "integer",
       "format": "int32",
       "minimum": 0,
       "exclusiveMinimum": true,
       "maximum": 100
      }
     }
    ]
   },
   "post": {
    "operationId": "addBook",
    "summary": "Adds a book.",
    "requestBody": {
     "required": true,
     "content": {
      "application/json": {
       "schema": {
        "$ref": "#/components/schemas/Book"
       }
      }
     }
    }
   }
  },
  "/books/{id}": {
   "parameters": [
    {
     "name": "id",
     "in": "path",
     "required": true,
     "schema": {
      "type": "string"
     }
    }
   ],
   "get": {
    "operationId": "getBook",
    "summary": "Reads a book.",
    "security": [
     {
      "query_key": []
     }
    ]
   }
  }
 },
 "components": {
  "schemas": {
   "Book": {
    "type": "object",
    "required": [
     "title"
    ],
    "properties": {
     "title": {
      "type": "string"
     },
     "subtitle": {
      "type": "string",
      "nullable": true
     },
     "sequel": {
      "$ref": "#/components/schemas/Book"
     }
    }
   }
  },
  "securitySchemes": {
   "shop_token": {
    "type": "http",
    "scheme": "bearer"
   },
   "query_key": {
    "type": "apiKey",
    "in": "query",
    "name": "key"
   }
  }
 }
}'''

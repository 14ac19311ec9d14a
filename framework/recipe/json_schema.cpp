// json_schema

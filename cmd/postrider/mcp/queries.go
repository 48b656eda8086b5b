package mcp

import (
	"context"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"postrider/cmd/postrider/cli/rest"
)

const queryDescription = "Run one read-only SQL statement on the database. The views of schema postrider have all " +
	"events, deliveries, attempts and dead letters; for their columns see information_schema.columns where table_schema " +
	"= 'postrider', and for their comments pg_catalog.obj_description and col_description. list_queries has examples. " +
	"The key needs the right to run queries."

// addQueries adds the tools for SQL.
func addQueries(s *sdk.Server, t *tools) {
	addReading(s, "list_queries", "List queries with their SQL: the documented questions of operators, and those that "+
		"users have saved.", t.listQueries)
	addReading(s, "run_query", queryDescription, t.runQuery)
	addReading(s, "run_saved_query", "Run a query of list_queries. The key needs the right to run queries.",
		t.runSavedQuery)
}

func (t *tools) listQueries(ctx context.Context, _ *struct{}) (*answer, error) {
	list, err := t.All(ctx, "/v1/queries")
	documented, saved := table{name: "documented", own: true}, table{name: "saved", foreign: true}
	for _, q := range list {
		shown := rest.Object{}
		for _, name := range []string{"name", "description", "sql", "parameters", "owner"} {
			shown[name] = q[name]
		}
		if q["template"] == true {
			documented.rows = append(documented.rows, shown)
		} else {
			saved.rows = append(saved.rows, shown)
		}
	}
	return &answer{tables: []table{documented, saved}}, err
}

type queryInput struct {
	SQL   string   `json:"sql" jsonschema:"one SELECT, VALUES, WITH or TABLE"`
	Args  []string `json:"args,omitempty" jsonschema:"values of $1, $2, … as texts"`
	Limit int      `json:"limit,omitempty" jsonschema:"most rows, 1 to 200; default 50"`
}

func (t *tools) runQuery(ctx context.Context, in *queryInput) (*answer, error) {
	body := rest.Object{"sql": in.SQL}
	if len(in.Args) > 0 {
		body["args"] = in.Args
	}
	return t.run(ctx, "/v1/queries/run", body, in.Limit)
}

type savedQueryInput struct {
	Query string            `json:"query" jsonschema:"name of the query"`
	Args  map[string]string `json:"args,omitempty" jsonschema:"values of its parameters; those of $1, $2, … have the names 1, 2, …"`
	Limit int               `json:"limit,omitempty" jsonschema:"most rows, 1 to 200; default 50"`
}

func (t *tools) runSavedQuery(ctx context.Context, in *savedQueryInput) (*answer, error) {
	body := rest.Object{}
	if len(in.Args) > 0 {
		body["args"] = in.Args
	}
	return t.run(ctx, rest.ItemURL("/v1/queries", in.Query)+"/run", body, in.Limit)
}

// run returns the rows of a query as foreign texts. So is PostgreSQL's error: it can quote a value.
func (t *tools) run(ctx context.Context, path string, body rest.Object, limit int) (*answer, error) {
	most, err := (&pageInput{Limit: limit}).rows()
	if err != nil {
		return nil, err
	}
	body["limit"] = most
	var result struct {
		Columns []any
		Rows    []any
		More    bool
	}
	err = t.Call(ctx, http.MethodPost, path, body, &result)
	if rest.IsStatus(err, http.StatusBadRequest) {
		return &answer{
			failed: true, facts: rest.Object{"error": "The query was rejected. The block below has the message."},
			tables: []table{{name: "errors", rows: []any{err.Error()}, foreign: true}},
		}, nil
	}
	return &answer{tables: []table{
		{name: "columns", rows: result.Columns, foreign: true},
		{name: "rows", rows: result.Rows, more: result.More, foreign: true},
	}}, err
}

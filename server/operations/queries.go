package operations

import (
	"context"

	"postrider/internal/sqlquery"
	"postrider/server/api"
)

// ListQueries lists saved queries by name.
//
// Lists your queries, the shared queries of others, and the documented questions as templates.
func (m *Handlers) ListQueries(ctx context.Context, r *api.PageParams) (*api.List[sqlquery.Saved], error) {
	read := func(ctx context.Context, after string, limit int) (page []sqlquery.Saved, err error) {
		all, err := m.Parts.SavedQueries.List(ctx)
		for _, q := range all {
			if q.Name > after && len(page) < limit {
				page = append(page, q)
			}
		}
		return page, err
	}
	return api.ListAfter(ctx, r, read, func(q sqlquery.Saved) string { return q.Name })
}

// QueryPath names a saved query.
type QueryPath struct {
	Name string `path:"query" example:"by-topic"`
}

// QuerySpec are the settings of a saved query.
type QuerySpec struct {
	// What the query returns; up to 1,000 characters.
	Description string `json:"description,omitempty"`
	// One SELECT, WITH, VALUES or TABLE statement; up to 64 KiB.
	SQL string `json:"sql"`
	// All users and keys that may run queries see and run it.
	Shared bool `json:"shared,omitempty" default:"false"`
}

type putQueryRequest struct {
	QueryPath
	Body QuerySpec
}

// PutQuery saves a query.
//
// Creates a query, or replaces your query with this name. Names of templates are taken, and so is, for a shared query,
// the name of another user's shared one.
func (m *Handlers) PutQuery(ctx context.Context, r *putQueryRequest) (*api.Put[sqlquery.Saved], error) {
	created, err := m.Parts.SavedQueries.Put(ctx, sqlquery.Saved{
		Name: r.Name, Description: r.Body.Description, SQL: r.Body.SQL, Shared: r.Body.Shared,
	})
	if err != nil {
		return nil, err
	}
	q, err := m.Parts.SavedQueries.Get(ctx, r.Name)
	return &api.Put[sqlquery.Saved]{Body: q, Created: created}, err
}

// GetQuery reads a saved query.
//
// Returns your query, a shared or temporary one, or a template.
func (m *Handlers) GetQuery(ctx context.Context, r *QueryPath) (*sqlquery.Saved, error) {
	return m.Parts.SavedQueries.Get(ctx, r.Name)
}

// DeleteQuery deletes a query.
//
// Deletes your query. An administrator also deletes shared ones.
func (m *Handlers) DeleteQuery(ctx context.Context, r *QueryPath) (*api.NoContent, error) {
	return &api.NoContent{}, m.Parts.SavedQueries.Delete(ctx, r.Name)
}

// RunSQLSpec is a query to run.
type RunSQLSpec struct {
	// One SELECT, WITH, VALUES or TABLE statement; up to 64 KiB.
	SQL string `json:"sql"`
	// Values of $1, $2, … as text.
	Args []string `json:"args,omitempty"`
	// Highest number of rows.
	Limit *int `json:"limit,omitempty" minimum:"1" maximum:"1000" default:"1000"`
	// true returns PostgreSQL's plan and does not run the query.
	Plan bool `json:"plan,omitempty" default:"false"`
}

// RunQuerySpec are the arguments of a saved query.
type RunQuerySpec struct {
	// Values of the parameters by name. The parameters of a query with $1, $2, … are named 1, 2, …
	Args map[string]string `json:"args,omitempty"`
	// Highest number of rows.
	Limit *int `json:"limit,omitempty" minimum:"1" maximum:"1000" default:"1000"`
	// true returns PostgreSQL's plan and does not run the query.
	Plan bool `json:"plan,omitempty" default:"false"`
}

// QueryResult are the first rows of a result.
type QueryResult struct {
	// The columns.
	Columns []sqlquery.Column `json:"columns"`
	// The rows. Values are PostgreSQL's text; null for NULL.
	Rows [][]*string `json:"rows"`
	// The query has more rows, or they exceed 8 MiB.
	More bool `json:"more"`
	// Duration of the query.
	TookMilliseconds int64 `json:"tookMilliseconds"`
	// The plan, if it was requested.
	Plan *string `json:"plan"`
}

// RunSQL runs SQL.
//
// Runs one query in a read-only transaction of a role that may only read the views of schema `postrider`. It may call
// functions of `pg_catalog` and `postrider` that are not volatile, and no XML: another query is 400, and the message
// names what is not allowed. It runs for at most 30 s (`--query-timeout`), and ends when the client closes the
// connection. Four queries run at a time on all nodes together, two of one credential on each node. Further ones are
// 429, or 503 if the node runs four. The audit has a row for each run.
func (m *Handlers) RunSQL(ctx context.Context, r *api.Body[RunSQLSpec]) (*QueryResult, error) {
	return m.run(ctx, sqlquery.Request{SQL: r.Body.SQL, Args: r.Body.Args}, r.Body.Limit, r.Body.Plan)
}

type runQueryRequest struct {
	QueryPath
	Body RunQuerySpec `required:"false"`
}

// RunQuery runs a saved query.
//
// Runs a saved query with values of its parameters, as `runSQL` does.
func (m *Handlers) RunQuery(ctx context.Context, r *runQueryRequest) (*QueryResult, error) {
	saved, err := m.Parts.SavedQueries.Get(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	q, err := saved.Request(r.Body.Args)
	if err != nil {
		return nil, err
	}
	return m.run(ctx, q, r.Body.Limit, r.Body.Plan)
}

func (m *Handlers) run(ctx context.Context, q sqlquery.Request, limit *int, plan bool) (*QueryResult, error) {
	if limit != nil {
		if q.MaxRows = *limit; q.MaxRows < 1 || q.MaxRows > sqlquery.MaxRows {
			return nil, api.Invalid("limit", "must be 1 to %d", sqlquery.MaxRows)
		}
	}
	if plan {
		text, err := m.Parts.Queries.Plan(ctx, q)
		return &QueryResult{Columns: []sqlquery.Column{}, Rows: [][]*string{}, Plan: &text}, err
	}
	result, err := m.Parts.Queries.Run(ctx, q)
	if err != nil {
		return nil, err
	}
	return &QueryResult{
		Columns: result.Columns, Rows: result.Rows, More: result.More, TookMilliseconds: result.Took.Milliseconds(),
	}, nil
}

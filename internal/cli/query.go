package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"postrider/internal/cli/rest"
	"postrider/internal/sqlquery"
	"postrider/internal/terminal"
	"postrider/server/operations"
)

// QueryCmd is query with its verbs.
type QueryCmd struct {
	List   rest.AllVerb[sqlquery.Saved] `cmd:"" help:"List your queries, shared ones and the documented questions." example:"query list"`
	Show   queryShowCmd                 `cmd:"" help:"Show a query with its SQL." example:"query show pending"`
	Save   querySaveCmd                 `cmd:"" help:"Save a query, or replace yours with the same name." example:"query save unpaid --sql \"select event_id from postrider.dead_letters where reason = 'Expired'\"; query save unpaid --shared < unpaid.sql"`
	Delete queryDeleteCmd               `cmd:"" help:"Delete a query." example:"query delete unpaid"`
	Run    queryRunCmd                  `cmd:"" help:"Run a query, up to 1,000 rows." detail:"The server runs it in a read-only transaction of a role that may only read, for at most 30 s." example:"query run pending --arg topic=orders --arg subscription=billing; query run unpaid -o csv > unpaid.csv; query run --sql 'select * from postrider.backlogs'"`
}

// oneQuery has the flags of verbs about one query.
type oneQuery struct {
	rest.Flags
	Name string `arg:"" help:"Name of the query."`
}

func (q *oneQuery) url() string { return rest.ItemURL("/v1/queries", q.Name) }

type queryShowCmd struct{ oneQuery }

func (c *queryShowCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	return c.Do(ctx, std, client, http.MethodGet, c.url(), nil, func(w io.Writer, o rest.Object) {
		rest.PrintRow[sqlquery.Saved](w, o)
		fmt.Fprintf(w, "\n%s\n", terminal.PlainLines(terminal.PlainText(o["sql"])))
	})
}

type querySaveCmd struct {
	oneQuery
	SQL         string `name:"sql" help:"The SQL (default: read it from standard input)." placeholder:"SQL"`
	Description string `help:"What the query returns." placeholder:"TEXT"`
	Shared      bool   `help:"All users who may run queries see and run it."`
}

func (c *querySaveCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	if c.SQL == "" {
		text, err := terminal.ReadFileOrInput(std.In, "-")
		if err != nil {
			return err
		}
		c.SQL = string(text)
	}
	body := rest.Object{"sql": c.SQL, "description": c.Description, "shared": c.Shared}
	return c.Do(ctx, std, client, http.MethodPut, c.url(), body, func(w io.Writer, _ rest.Object) {
		fmt.Fprintf(w, "Query %s was saved.\n", c.Name)
	})
}

type queryDeleteCmd struct{ oneQuery }

func (c *queryDeleteCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	return c.Delete(ctx, std, client, c.url(), "Query "+c.Name+" was deleted.", rest.Object{"name": c.Name})
}

type queryRunCmd struct {
	rest.ServerFlags
	Output string            `short:"o" help:"table, json or csv. In csv, an apostrophe stands before texts that a spreadsheet would run as formulas." enum:"table,json,csv" default:"table"`
	Name   string            `arg:"" optional:"" help:"Name of the query, as query list shows it."`
	SQL    string            `name:"sql" help:"Run this SQL instead of a saved query." placeholder:"SQL"`
	Arg    map[string]string `name:"arg" mapsep:"none" help:"Value of a parameter, which query show names; 1=VALUE is that of $1." placeholder:"NAME=VALUE"`
	Limit  int               `help:"Rows at most." range:"1..1000" default:"1000" placeholder:"N"`
	Plan   bool              `help:"Show PostgreSQL's plan instead of running the query."`
}

func (c *queryRunCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	if (c.Name == "") == (c.SQL == "") {
		return terminal.Usagef("query run: name either a query or --sql; query list lists the queries")
	}
	path, body := rest.ItemURL("/v1/queries", c.Name)+"/run", rest.Object{"limit": c.Limit, "plan": c.Plan, "args": c.Arg}
	if c.SQL != "" {
		args := []string{}
		for n := 1; n <= len(c.Arg); n++ {
			value, found := c.Arg[fmt.Sprint(n)]
			if !found {
				return terminal.Usagef("query run: the arguments of SQL are 1 to %d: --arg 1=VALUE", len(c.Arg))
			}
			args = append(args, value)
		}
		path, body["sql"], body["args"] = "/v1/queries/run", c.SQL, args
	}
	var result operations.QueryResult
	if err := client.Call(ctx, http.MethodPost, path, body, &result); err != nil {
		return err
	}
	if result.Plan != nil {
		_, err := fmt.Fprint(std.Out, terminal.EscapeControls(*result.Plan))
		return err
	}
	if err := printResult(std.Out, &result, c.Output); err != nil {
		return err
	}
	if result.More {
		fmt.Fprintf(std.Err, "postrider: the query has more rows; only the first %d are shown\n", len(result.Rows))
	}
	return nil
}

// printResult prints a result without control characters, which come from publishers.
func printResult(stdout io.Writer, r *operations.QueryResult, form string) error {
	if form == "table" {
		return terminal.OutputFlag{}.Print(stdout, nil, func(w io.Writer) { printTable(w, r) })
	}
	var text strings.Builder
	out, plain := sqlquery.NewCSV(&text), terminal.PlainLines
	if form == "json" {
		out, plain = sqlquery.NewJSON(&text), terminal.EscapeControls
	}
	if err := out.Columns(r.Columns); err != nil {
		return err
	}
	for _, row := range r.Rows {
		if err := out.Row(row); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	_, err := io.WriteString(stdout, plain(text.String()))
	return err
}

func printTable(w io.Writer, r *operations.QueryResult) {
	cells := make([]string, len(r.Columns))
	for i := range r.Columns {
		cells[i] = terminal.Cell(r.Columns[i].Name)
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
	for _, row := range r.Rows {
		for i, value := range row {
			cells[i] = ""
			if value != nil {
				cells[i] = terminal.Cell(*value)
			}
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	fmt.Fprintf(w, "(%s)\n", terminal.Plural(len(r.Rows), "row"))
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"postrider/docs"
	"postrider/internal/metrics"
	"postrider/internal/pgdev"
	"postrider/internal/postgres"
	"postrider/migrations"
)

// restDocument is what the page needs of the OpenAPI document.
type restDocument struct {
	Tags       []struct{ Name, Description string }
	Paths      map[string]map[string]yaml.Node
	Components struct {
		Schemas   map[string]struct{ Description string }
		Responses map[string]struct{ Description string }
	}
}

// restOperation is an operation of the OpenAPI document.
type restOperation struct {
	Path, Method string
	ID           string `yaml:"operationId"`
	Summary      string
	Tags         []string
	Access       string `yaml:"x-access"`
	Responses    map[string]struct {
		Ref string `yaml:"$ref"`
	}
}

// roles are the roles for the values of x-access.
var roles = map[string]string{
	"none": "–", "read": "viewer", "operate": "operator", "admin": "admin",
	"query":   "viewer with the flag query",
	"publish": "access key of the topic, or API key that may publish",
	"receive": "access key of the topic, or API key that may receive",
}

// restPage has the operations of the OpenAPI document by tag, and its texts of errors.
func restPage(context.Context) (string, error) {
	text, err := openAPI()
	if err != nil {
		return "", err
	}
	var document restDocument
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return "", fmt.Errorf("read the OpenAPI document: %w", err)
	}
	type group struct {
		Title, Anchor, Description string
		Operations                 []restOperation
	}
	data := struct {
		Groups    []group
		Errors    map[string]string
		Conflicts [][]string
	}{Errors: map[string]string{}}
	byTag, err := document.operations()
	if err != nil {
		return "", err
	}
	for _, tag := range document.Tags {
		title := strings.ToUpper(tag.Name[:1]) + tag.Name[1:]
		anchor := strings.ReplaceAll(tag.Name, " ", "-")
		data.Groups = append(data.Groups, group{title, anchor, tag.Description, byTag[tag.Name]})
		for _, op := range byTag[tag.Name] {
			for status, response := range op.Responses {
				if name, is := strings.CutPrefix(response.Ref, "#/components/responses/"); is {
					data.Errors[status] = document.Components.Responses[name].Description
				}
			}
		}
	}
	codes := strings.ReplaceAll(document.Components.Schemas["ConflictCode"].Description, "\n\n- ", "\n- ")
	for _, item := range strings.Split(codes, "\n- ")[1:] {
		code, text, _ := strings.Cut(item, ": ")
		data.Conflicts = append(data.Conflicts, []string{code, text})
	}
	return page("rest.md", data)
}

// operations returns the operations of each tag, by path and method.
func (d *restDocument) operations() (map[string][]restOperation, error) {
	byTag := map[string][]restOperation{}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range []string{"get", "put", "post", "patch", "delete"} {
			node, has := d.Paths[path][method]
			if !has {
				continue
			}
			op := restOperation{Path: path, Method: strings.ToUpper(method)}
			if err := node.Decode(&op); err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			role, known := roles[op.Access]
			if !known {
				return nil, fmt.Errorf("operation %s: x-access is %q: add it to roles in internal/gendocs", op.ID, op.Access)
			}
			op.Access = role
			byTag[op.Tags[0]] = append(byTag[op.Tags[0]], op)
		}
	}
	return byTag, nil
}

// sqlView is a view of schema postrider.
type sqlView struct {
	Name, Comment string
	Columns       []struct{ Name, Type, Comment string }
}

// sqlFunction is a function of schema postrider.
type sqlFunction struct{ Name, Arguments, Returns, Comment, Role string }

// sqlRole is a role of the SQL contract.
type sqlRole struct {
	Name  string
	Reads bool
}

// sqlPage has the views, functions and roles of a migrated database with their comments. A private server runs for it.
func sqlPage(ctx context.Context) (text string, err error) {
	private, err := pgdev.Start(ctx, pgdev.Options{Log: os.Stderr})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, private.Stop(context.WithoutCancel(ctx))) }()
	if err := migrate(ctx, private.URL("postgres")); err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, private.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	views, viewsErr := collect[sqlView](ctx, conn, "views.sql")
	functions, functionsErr := collect[sqlFunction](ctx, conn, "functions.sql")
	roles, rolesErr := collect[sqlRole](ctx, conn, "roles.sql")
	if err := errors.Join(viewsErr, functionsErr, rolesErr); err != nil {
		return "", err
	}
	return page("sql.md", map[string]any{
		"Views": views, "Functions": functions, "Roles": roles, "Questions": docs.Questions(),
	})
}

func migrate(ctx context.Context, url string) error {
	pool, err := postgres.OpenPool(ctx, url, 0)
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrations.Up(ctx, pool, io.Discard)
}

// collect returns the rows of a query of templates.
func collect[T any](ctx context.Context, conn *pgx.Conn, file string) ([]T, error) {
	query, err := templates.ReadFile("templates/" + file)
	if err != nil {
		return nil, err
	}
	rows, _ := conn.Query(ctx, string(query)) // CollectRows returns its error
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	if err != nil {
		return nil, fmt.Errorf("internal/gendocs/templates/%s: %w", file, err)
	}
	return list, nil
}

// alert is a rule of deploy/examples/prometheus/alerts.yaml.
type alert struct {
	Name        string `yaml:"alert"`
	For         string
	Labels      struct{ Severity string }
	Annotations struct{ Summary string }
}

// Runbook is the anchor of its runbook.
func (a alert) Runbook() string { return strings.ToLower(a.Name) }

// Meaning is the summary, with the names of labels for their values.
func (a alert) Meaning() string {
	return strings.NewReplacer("{{ $labels.", "`", " }}", "`").Replace(a.Annotations.Summary)
}

// metricsPage has the metrics by scope, and the alerts.
func metricsPage(context.Context) (string, error) {
	byScope := map[string][]*metrics.Metric{}
	for _, m := range metrics.List() {
		byScope[string(m.Scope)] = append(byScope[string(m.Scope)], m)
	}
	raw, err := os.ReadFile("deploy/examples/prometheus/alerts.yaml")
	if err != nil {
		return "", err
	}
	var rules struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal(raw, &rules); err != nil {
		return "", fmt.Errorf("deploy/examples/prometheus/alerts.yaml: %w", err)
	}
	return page("metrics.md", map[string]any{"Metrics": byScope, "Alerts": rules.Groups[0].Rules})
}

package sqlquery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/docs"
	"postrider/internal/access"
	"postrider/internal/postgres"
)

const (
	// temporaryLife is how long a temporary query is kept.
	temporaryLife = 24 * time.Hour
	// maxSaved is how many queries an owner may have, temporary ones included.
	maxSaved       = 1000
	maxDescription = 1000
)

// Saved is a saved query.
type Saved struct {
	// Name of the query.
	Name string `json:"name" column:"Name" list:"/v1/queries"`
	// Actor who saved it.
	Owner string `json:"owner" column:"Owner"`
	// All users and keys that may run queries see and run it.
	Shared bool `json:"shared" column:"Shared"`
	// What the query returns.
	Description string `json:"description" column:"Description"`
	// The SQL.
	SQL string `json:"sql" db:"sql"`
	// It is deleted after 24 hours.
	Temporary bool `json:"temporary"`
	// It is a documented question and cannot be changed.
	Template bool `json:"template" db:"-"`
	// Names of the arguments of a template.
	Parameters []string `json:"parameters" db:"-" line:"Arguments"`
	// When it was saved; null for a template.
	CreatedAt *time.Time `json:"createdAt"`
	// When it was last changed; null for a template.
	ChangedAt *time.Time `json:"changedAt"`
}

// Store has the saved queries. Any goroutine may call its methods.
type Store struct{ db *postgres.DB }

// NewStore returns the saved queries of a database.
func NewStore(db *postgres.DB) *Store { return &Store{db} }

// savedColumns begins a query for the saved queries of $1 and the shared ones; of the same name, the own one.
const savedColumns = "SELECT DISTINCT ON (name) name, description, sql, owner, shared, " +
	"expires_at IS NOT NULL AS temporary, created_at, changed_at " +
	"FROM postrider_internal.queries WHERE (expires_at IS NULL OR expires_at > now()) " +
	"AND (shared OR owner = $1) "

// List returns the actor's own and shared queries and the templates, by name. ErrUnavailable.
func (s *Store) List(ctx context.Context) ([]Saved, error) {
	const own = savedColumns + "AND expires_at IS NULL ORDER BY name, owner = $1 DESC"
	all, err := postgres.Collect[Saved](ctx, s.db, own, access.ActorOf(ctx).Name)
	if err != nil {
		return nil, err
	}
	for _, q := range docs.Questions() {
		all = append(all, *template(q))
	}
	for i := range all {
		if all[i].Parameters == nil {
			all[i].Parameters = []string{}
		}
	}
	slices.SortFunc(all, func(a, b Saved) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func template(q docs.Question) *Saved {
	return &Saved{
		Name: q.Name, Description: strings.TrimSpace(q.Title + " " + q.Note), SQL: q.SQL, Owner: "postrider", Shared: true,
		Template: true, Parameters: q.About(),
	}
}

// Get returns a template, an own or shared query, or a temporary query. *FunctionError, which is ErrNotFound.
func (s *Store) Get(ctx context.Context, name string) (*Saved, error) {
	if q, found := docs.Find(name); found && q.Name == name {
		return template(q), nil
	}
	if !access.IsName(name) {
		return nil, noQuery(name)
	}
	const query = savedColumns + "AND name = $2 ORDER BY name, owner = $1 DESC"
	found, err := postgres.Row[Saved](ctx, s.db, query, access.ActorOf(ctx).Name, name)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, noQuery(name)
	}
	if err != nil {
		return nil, postgres.ReadError("a query", err)
	}
	found.Parameters = []string{}
	return found, nil
}

func noQuery(name string) error {
	return postgres.NewFunctionError(postgres.ErrNotFound, "query", "there is no query %q", name)
}

// Put creates or replaces a query of the actor. created reports which. *FunctionError: ErrInvalid, ErrConflict if the
// name is taken by a template, or a shared query's by another one. ErrUnavailable.
func (s *Store) Put(ctx context.Context, q Saved) (created bool, err error) {
	if err := q.validate(); err != nil {
		return false, err
	}
	return s.put(ctx, q)
}

func (q *Saved) validate() error {
	_, taken := docs.Find(q.Name)
	request := Request{SQL: q.SQL}
	switch {
	case !access.IsName(q.Name) || strings.HasPrefix(q.Name, temporaryPrefix):
		return postgres.Invalid("name", "name must be %s; names that begin with %s are of temporary queries", access.NameRule,
			temporaryPrefix)
	case q.Name == "run": // in URLs, it runs SQL that is not saved
		return postgres.Invalid("name", "name must not be run")
	case taken:
		return postgres.NewFunctionError(postgres.ErrNameTaken, "name", "name %q belongs to a template", q.Name)
	case utf8.RuneCountInString(q.Description) > maxDescription:
		return postgres.Invalid("description", "description must have at most %d characters", maxDescription)
	}
	if err := request.validate(); err != nil {
		return postgres.Invalid("sql", "%v", err)
	}
	return nil
}

// put writes the row and, for a lasting query, the audit.
func (s *Store) put(ctx context.Context, q Saved) (created bool, err error) {
	err = s.change(ctx, "save a query", func(tx pgx.Tx) error {
		var life *time.Duration
		if q.Temporary {
			life = new(temporaryLife)
		}
		owner := access.ActorOf(ctx).Name
		err := postgres.NameFree(ctx, tx, "query", sql("query_like"), q.Name, owner, q.Shared)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, sql("query_put"), q.Name, q.Description, q.SQL, owner, q.Shared, life, maxSaved).
			Scan(&created)
		if errors.Is(err, pgx.ErrNoRows) {
			return postgres.NewFunctionError(postgres.ErrConflict, "", "you have %d queries; delete one first", maxSaved)
		}
		if postgres.SQLState(err) == "23505" { // unique_violation
			return postgres.NewFunctionError(postgres.ErrNameTaken, "name", "another user shares a query as %q", q.Name)
		}
		if err != nil || q.Temporary {
			return err
		}
		details := map[string]any{"query": q.Name, "shared": q.Shared}
		return access.Audit(ctx, tx, access.AuditEntry{Action: access.AuditQuerySaved, Details: details})
	})
	return created, err
}

const temporaryPrefix = "temporary-"

// OpenTemporary stores SQL for 24 hours under a random name, which it returns: a link that has the name opens it.
func (s *Store) OpenTemporary(ctx context.Context, text string) (name string, err error) {
	request := Request{SQL: text}
	if err := request.validate(); err != nil {
		return "", err
	}
	name = temporaryPrefix + uuid.NewString()
	_, err = s.put(ctx, Saved{Name: name, SQL: text, Shared: true, Temporary: true})
	return name, err
}

// Delete removes a query of the actor; an administrator also removes shared ones. *FunctionError, which is ErrNotFound.
func (s *Store) Delete(ctx context.Context, name string) error {
	found, err := s.Get(ctx, name)
	if err != nil {
		return err
	}
	actor := access.ActorOf(ctx)
	if found.Owner != actor.Name && !actor.Role.Allows(access.RoleAdmin) {
		return postgres.NewFunctionError(postgres.ErrNotFound, "query", "you have no query %q", name)
	}
	return s.change(ctx, "delete a query", func(tx pgx.Tx) error {
		const remove = "DELETE FROM postrider_internal.queries WHERE name = $1 AND owner = $2"
		tag, err := tx.Exec(ctx, remove, name, found.Owner)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return postgres.NewFunctionError(postgres.ErrNotFound, "query", "you have no query %q", name)
		}
		return access.Audit(ctx, tx, access.AuditEntry{
			Action: access.AuditQueryDeleted, Details: map[string]any{"query": name},
		})
	})
}

func (s *Store) change(ctx context.Context, doing string, do func(pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, s.db, do)
	var rejection *postgres.FunctionError
	if err == nil || errors.As(err, &rejection) {
		return err
	}
	return postgres.Outage(doing, err)
}

// Clean removes temporary queries that have expired.
func (s *Store) Clean(ctx context.Context) error {
	const expired = "DELETE FROM postrider_internal.queries WHERE expires_at <= now()"
	return postgres.Exec(ctx, s.db, "remove temporary queries", expired)
}

// Request is the query with the values of its parameters: named ones of a template, numbers of another query.
func (q *Saved) Request(args map[string]string) (Request, error) {
	r := Request{SQL: q.SQL, Name: q.Name}
	if q.Template {
		for _, name := range q.Parameters {
			if args[name] == "" {
				return r, postgres.Invalid("args", "query %q needs the argument %s", q.Name, name)
			}
		}
		for name := range args {
			if !slices.Contains(q.Parameters, name) {
				return r, postgres.Invalid("args", "query %q has no argument %s", q.Name, name)
			}
		}
		question, _ := docs.Find(q.Name)
		r.SQL = question.With(args)
		return r, nil
	}
	for i := range len(args) {
		value, found := args[fmt.Sprint(i+1)]
		if !found {
			return r, postgres.Invalid("args", "the arguments of query %q are 1 to %d, not %s", q.Name, len(args),
				strings.Join(slices.Sorted(maps.Keys(args)), ", "))
		}
		r.Args = append(r.Args, value)
	}
	return r, nil
}

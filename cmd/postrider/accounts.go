package main

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
	"postrider/server/api"
	v1 "postrider/server/v1"
)

// accountFlags are the flags of verbs about users and API keys. --database-url is the way in without a running service
// or an administrator's key, so it is not read from the environment.
type accountFlags struct {
	rest.Flags
	DatabaseURL string `help:"Change this PostgreSQL database directly, without a running service or an administrator's key." placeholder:"URL"`
	PgBouncer   bool   `name:"pgbouncer" help:"The URL of the database leads to PgBouncer in transaction mode." env:"POSTRIDER_PGBOUNCER"`
}

// ProvideClient gives kong the client of the service or, with --database-url, of the same handlers in this process.
func (f accountFlags) ProvideClient(ctx context.Context) (*rest.Client, error) {
	if f.DatabaseURL == "" {
		const otherwise = "change the database itself with --database-url"
		client, err := f.Client()
		if err != nil {
			return nil, terminal.Usagef("%v; or %s", err, otherwise)
		}
		client.Otherwise = otherwise
		return client, nil
	}
	a, err := databaseFlags{f.DatabaseURL, f.PgBouncer}.access(ctx)
	if err != nil {
		return nil, err
	}
	return rest.InProcess(accountsAPI(a)), nil
}

var apiKeysPath, usersPath = rest.ListURL[access.APIKey](), rest.ListURL[access.User]()

// accountsAPI is the part of the REST API about users and API keys, without authentication: the audit records cli.
func accountsAPI(a *access.Access) http.Handler {
	m := &v1.Handlers{Parts: v1.Parts{Access: a}, Log: slog.New(slog.DiscardHandler)}
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		response := api.ResponseTo(err, c)
		if response == nil || response.Status >= http.StatusInternalServerError { // there is no log with the cause
			response = api.Reject(http.StatusInternalServerError, api.CodeInternal, "%v", err)
		}
		_ = response.Write(c)
	}
	e.GET(apiKeysPath, api.Handle("", m.ListAPIKeys).Handle)
	e.POST(apiKeysPath, api.Handle("", m.CreateAPIKey).Handle)
	e.GET(apiKeysPath+"/:apiKey", api.Handle("", m.GetAPIKey).Handle)
	e.DELETE(apiKeysPath+"/:apiKey", api.Handle("", m.RevokeAPIKey).Handle)
	e.GET(usersPath, api.Handle("", m.ListUsers).Handle)
	e.GET(usersPath+"/:user", api.Handle("", m.GetUser).Handle)
	e.PUT(usersPath+"/:user", api.Handle("", m.PutUser).Handle)
	e.DELETE(usersPath+"/:user", api.Handle("", m.DeleteUser).Handle)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.ServeHTTP(w, r.WithContext(access.WithActor(r.Context(), access.Actor{Name: "cli"})))
	})
}

// accountListCmd lists the accounts of type T.
type accountListCmd[T any] struct{ accountFlags }

// Run executes the verb.
func (c *accountListCmd[T]) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	return c.All(ctx, std, client, rest.ListURL[T](), rest.ColumnsOf[T]())
}

// oneAccount has the flags of verbs about one user or API key.
type oneAccount struct {
	accountFlags
	Name string `arg:"" help:"Its name."`
}

// accountShowCmd shows an account of type T.
type accountShowCmd[T any] struct{ oneAccount }

// Run executes the verb.
func (c *accountShowCmd[T]) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	path := rest.ItemURL(rest.ListURL[T](), c.Name)
	return c.Do(ctx, std, client, http.MethodGet, path, nil, rest.PrintRow[T])
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"postrider/internal/access"
	"postrider/internal/cli/rest"
	"postrider/internal/postgres"
	"postrider/internal/terminal"
)

// accountFlags are the flags of verbs about users and API keys. They call the REST API; --database-url is the way in
// without a running service or an administrator's key, so it is not read from the environment.
type accountFlags struct {
	rest.ServerFlags
	terminal.OutputFlag
	DatabaseURL string `help:"Change this PostgreSQL database directly, without a running service or an administrator's key." placeholder:"URL"`
	PgBouncer   bool   `name:"pgbouncer" help:"The URL of the database leads to PgBouncer in transaction mode." env:"POSTRIDER_PGBOUNCER"`
}

// accounts are users and API keys: *access.Access in the database, or remoteAccounts through the REST API.
type accounts interface {
	APIKeys(ctx context.Context, after string, limit int) ([]access.APIKey, error)
	APIKey(ctx context.Context, name string) (*access.APIKey, error)
	CreateAPIKey(ctx context.Context, spec access.APIKeySpec) (string, *access.APIKey, error)
	RevokeAPIKey(ctx context.Context, name string) (*access.APIKey, error)
	Users(ctx context.Context, after string, limit int) ([]access.User, error)
	User(ctx context.Context, name string) (*access.User, error)
	PutUser(ctx context.Context, name string, spec access.UserSpec, when ...postgres.Condition) (bool, error)
	DeleteUser(ctx context.Context, name string, when ...postgres.Condition) error
}

// ProvideAccounts gives kong the argument of the verbs.
func (f accountFlags) ProvideAccounts(ctx context.Context) (accounts, error) {
	if f.DatabaseURL != "" {
		return databaseFlags{f.DatabaseURL, f.PgBouncer}.access(ctx)
	}
	client, err := f.Client()
	if err != nil {
		return nil, terminal.Usagef("%v; or change the database itself with --database-url", err)
	}
	return remoteAccounts{client}, nil
}

// remoteAccounts are those of a service. The conditions of a change are its own.
type remoteAccounts struct{ client *rest.Client }

const apiKeysPath, usersPath = "/v1/apiKeys", "/v1/users"

func (r remoteAccounts) APIKeys(ctx context.Context, _ string, _ int) ([]access.APIKey, error) {
	return listOf[access.APIKey](ctx, r.client, apiKeysPath)
}

func (r remoteAccounts) APIKey(ctx context.Context, name string) (*access.APIKey, error) {
	return call[access.APIKey](ctx, r.client, http.MethodGet, rest.ItemURL(apiKeysPath, name), nil)
}

func (r remoteAccounts) CreateAPIKey(ctx context.Context, spec access.APIKeySpec) (string, *access.APIKey, error) {
	k, err := call[access.APIKey](ctx, r.client, http.MethodPost, apiKeysPath, spec)
	return k.Key, k, err
}

func (r remoteAccounts) RevokeAPIKey(ctx context.Context, name string) (*access.APIKey, error) {
	return call[access.APIKey](ctx, r.client, http.MethodDelete, rest.ItemURL(apiKeysPath, name), nil)
}

func (r remoteAccounts) Users(ctx context.Context, _ string, _ int) ([]access.User, error) {
	return listOf[access.User](ctx, r.client, usersPath)
}

func (r remoteAccounts) User(ctx context.Context, name string) (*access.User, error) {
	return call[access.User](ctx, r.client, http.MethodGet, rest.ItemURL(usersPath, name), nil)
}

// PutUser creates a user, or changes one: without a role, which the API requires, it keeps that of the user.
func (r remoteAccounts) PutUser(
	ctx context.Context, name string, spec access.UserSpec, _ ...postgres.Condition,
) (bool, error) {
	var condition []string
	if spec.Role == "" {
		u, err := r.User(ctx, name)
		if err != nil {
			return false, err
		}
		spec.Role, condition = u.Role, []string{"If-Match", u.Version.String()}
	}
	_, err := call[access.User](ctx, r.client, http.MethodPut, rest.ItemURL(usersPath, name), spec, condition...)
	return false, err
}

func (r remoteAccounts) DeleteUser(ctx context.Context, name string, _ ...postgres.Condition) error {
	_, err := call[access.User](ctx, r.client, http.MethodDelete, rest.ItemURL(usersPath, name), nil)
	return err
}

// call makes a request and returns the object in the response.
func call[T any](
	ctx context.Context, client *rest.Client, method, path string, body any, headers ...string,
) (*T, error) {
	into := new(T)
	err := client.Call(ctx, method, path, body, into, headers...)
	if status := rest.ErrorOf(err).Status; err != nil && (status == 0 || status == http.StatusUnauthorized) {
		err = fmt.Errorf("%w; or change the database itself with --database-url", err)
	}
	return into, err
}

// listOf returns all objects of a list.
func listOf[T any](ctx context.Context, client *rest.Client, next string) ([]T, error) {
	list := []T{}
	for next != "" {
		type page struct {
			Value    []T
			NextLink string
		}
		p, err := call[page](ctx, client, http.MethodGet, next, nil)
		if err != nil {
			return nil, err
		}
		list, next = append(list, p.Value...), p.NextLink
	}
	return list, nil
}

// isMissing reports whether there is no user or key with that name.
func isMissing(err error) bool {
	return errors.Is(err, postgres.ErrNotFound) || rest.IsStatus(err, http.StatusNotFound)
}

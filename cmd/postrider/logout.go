package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"

	"postrider/server"
)

type logoutCmd struct {
	outputFlag
	Server string `arg:"" optional:"" help:"URL or name (default: the default server)." placeholder:"URL|NAME"`
}

// Help is shown by logout --help.
func (logoutCmd) Help() string {
	return `Revokes your personal key at the server and removes it from this computer. If the server does not answer, the
key is removed here all the same; it works at the server until it expires, or until you revoke it on your account page.

Examples:
  postrider logout
  postrider logout staging`
}

// Run executes logout.
func (c *logoutCmd) Run(ctx context.Context) error {
	saved, err := readSavedServers()
	if err != nil {
		return err
	}
	one, err := saved.find(c.Server)
	if err != nil {
		return err
	}
	if one == nil {
		return usagef("you are not logged in to %s (%s)", cmp.Or(c.Server, "a server"), saved.names())
	}
	gone := *one
	revoked := gone.revoke(ctx)
	saved.remove(gone.Name)
	if err := saved.write(); err != nil {
		return fmt.Errorf("remove the key: %w", err)
	}
	if revoked != nil {
		return fmt.Errorf("the key for %s is removed from this computer, but could not be revoked: %w. "+
			"It works until %s; to end it now, revoke it on your account page, %s/ui/account",
			gone.Name, revoked, moment(gone.ExpiresAt), gone.URL)
	}
	return c.did(func() (any, error) { return object{"name": gone.Name, "url": gone.URL, "deleted": true}, nil },
		"Logged out of %s. The key is revoked.", gone.Name)
}

// revoke ends the key at the server. One that works no more is revoked.
func (s *savedServer) revoke(ctx context.Context) error {
	if err := requireSecret(s.URL); err != nil {
		return err
	}
	client, err := serverFlags{Server: s.URL, CAFile: s.CAFile}.connect()
	if err != nil {
		return err
	}
	client.key = s.Key
	err = client.call(ctx, http.MethodDelete, "/v1/me/key", nil, nil)
	if isStatus(err, http.StatusUnauthorized) {
		return nil
	}
	return err
}

type whoamiCmd struct {
	serverFlags
	outputFlag
}

// Help is shown by whoami --help.
func (whoamiCmd) Help() string {
	return `Shows which server the other verbs call, in whose name, with which role, and until when the key works.

Examples:
  postrider whoami
  postrider whoami --server staging -o json`
}

// Run executes whoami.
func (c *whoamiCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	var me server.Me
	if err := client.call(ctx, http.MethodGet, "/v1/me", nil, &me); err != nil {
		return err
	}
	shown := struct {
		server.Me
		Server string `json:"server"`
	}{me, client.base}
	return c.print(shown, func(w io.Writer) {
		printNamed(w, "name", me.Name, "role", me.Role, "server", client.base, "API key", me.ApiKey, "expires", me.ExpiresAt)
	})
}

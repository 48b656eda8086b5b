package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/server/management"
)

// LogoutCmd is logout.
type LogoutCmd struct {
	terminal.OutputFlag
	Server string `arg:"" optional:"" help:"URL or name (default: the default server)." placeholder:"URL|NAME"`
}

// Help is shown by logout --help.
func (LogoutCmd) Help() string {
	return `Revokes your personal key at the server and removes it from this computer. If the server does not answer, the
key is removed here all the same; it works at the server until it expires, or until you revoke it on your account page.

Examples:
  postrider logout
  postrider logout staging`
}

// Run executes logout.
func (c *LogoutCmd) Run(ctx context.Context) error {
	saved, err := rest.ReadSavedServers()
	if err != nil {
		return err
	}
	one, err := saved.Find(c.Server)
	if err != nil {
		return err
	}
	if one == nil {
		return terminal.Usagef("you are not logged in to %s (%s)", cmp.Or(c.Server, "a server"), saved.Names())
	}
	gone := *one
	revoked := revoke(ctx, &gone)
	saved.Remove(gone.Name)
	if err := saved.Write(); err != nil {
		return fmt.Errorf("remove the key: %w", err)
	}
	if revoked != nil {
		return fmt.Errorf("the key for %s is removed from this computer, but could not be revoked: %w. "+
			"It works until %s; to end it now, revoke it on your account page, %s/ui/account",
			gone.Name, revoked, terminal.Time(gone.ExpiresAt), gone.URL)
	}
	return c.Done(func() (any, error) { return rest.Object{"name": gone.Name, "url": gone.URL, "deleted": true}, nil },
		"Logged out of %s. The key is revoked.", gone.Name)
}

// revoke ends the key of a server there. One that works no more is revoked.
func revoke(ctx context.Context, s *rest.SavedServer) error {
	if err := rest.RequireSecret(s.URL); err != nil {
		return err
	}
	client, err := rest.ServerFlags{Server: s.URL, CAFile: s.CAFile}.Connect()
	if err != nil {
		return err
	}
	client.Key = s.Key
	err = client.Call(ctx, http.MethodDelete, "/v1/me/key", nil, nil)
	if rest.IsStatus(err, http.StatusUnauthorized) {
		return nil
	}
	return err
}

// WhoamiCmd is whoami.
type WhoamiCmd struct {
	rest.ServerFlags
	terminal.OutputFlag
}

// Help is shown by whoami --help.
func (WhoamiCmd) Help() string {
	return `Shows which server the other verbs call, in whose name, with which role, and until when the key works.

Examples:
  postrider whoami
  postrider whoami --server staging -o json`
}

// Run executes whoami.
func (c *WhoamiCmd) Run(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	var me management.Me
	if err := client.Call(ctx, http.MethodGet, "/v1/me", nil, &me); err != nil {
		return err
	}
	shown := struct {
		management.Me
		Server string `json:"server"`
	}{me, client.Base}
	return c.Print(shown, func(w io.Writer) {
		terminal.PrintNamed(w, "name", me.Name, "role", me.Role, "server", client.Base, "API key", me.APIKey, "expires",
			me.ExpiresAt)
	})
}

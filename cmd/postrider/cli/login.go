package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/server/management"
)

// LoginCmd is login.
type LoginCmd struct {
	terminal.OutputFlag
	Server    string `arg:"" help:"URL of the server, or the name of a stored one." placeholder:"URL|NAME"`
	Name      string `help:"Name to store the server under (default: its host)." placeholder:"NAME"`
	Role      string `help:"The most the key may do: viewer, operator or admin (default: your role)." placeholder:"ROLE"`
	Machine   string `help:"Name of this computer on the page (default: its host name)." placeholder:"NAME"`
	CAFile    string `name:"ca-file" help:"Certificate authority (PEM) of the server; stored." env:"POSTRIDER_CA_FILE"`
	NoBrowser bool   `help:"Do not open a browser."`
}

// Help is shown by login --help.
func (LoginCmd) Help() string {
	return `Prints a code and the address of a page, and opens the page in a browser if it can. Sign in there, compare the
code, and approve the login. The personal key has at most your rights and works for 12 hours. It is stored in a file
that only you can read, and the server becomes the default of the other verbs.

On a computer without a browser, open the page on another one, or create a personal key on the account page of the
dashboard and set it as POSTRIDER_API_KEY.

Examples:
  postrider login https://events.example.com
  postrider login https://staging.example.com --name staging --role viewer`
}

// Run executes login.
func (c *LoginCmd) Run(ctx context.Context) error {
	saved, err := rest.ReadSavedServers()
	if err != nil {
		return err
	}
	if err := c.complete(&saved); err != nil {
		return err
	}
	client, err := rest.ServerFlags{Server: c.Server, CAFile: c.CAFile}.Connect()
	if err != nil {
		return err
	}
	if client.Key, err = c.authorize(ctx, client); err != nil {
		return err
	}
	var me struct {
		Name, Role string
		ExpiresAt  time.Time
	}
	if err := client.Call(ctx, http.MethodGet, "/v1/me", nil, &me); err != nil {
		return err
	}
	one := rest.SavedServer{
		Name: c.Name, URL: client.Base, CAFile: c.CAFile, Key: client.Key,
		User: strings.TrimPrefix(me.Name, "user:"), Role: me.Role, ExpiresAt: me.ExpiresAt,
	}
	if err := storeServer(ctx, one); err != nil {
		_ = revoke(ctx, &one) // the key was not stored
		return err
	}
	return c.Done(func() (any, error) { return shown(&one, true), nil },
		"Logged in to %s as %s, with the role %s, until %s. %s is the default server.",
		one.URL, one.User, one.Role, terminal.Time(one.ExpiresAt), one.Name)
}

// storeServer adds a server to the stored ones, and revokes the key that it replaces.
func storeServer(ctx context.Context, one rest.SavedServer) error {
	saved, err := rest.ReadSavedServers()
	if err != nil {
		return err
	}
	for i := range saved.Servers {
		if old := &saved.Servers[i]; old.Name == one.Name && rest.SameServer(old.URL, one.URL) {
			_ = revoke(ctx, old) // otherwise it expires
		}
	}
	saved.Put(one)
	return saved.Write()
}

// complete completes the flags with the stored server and defaults, and validates them.
func (c *LoginCmd) complete(saved *rest.SavedServers) error {
	one, err := saved.Find(c.Server)
	if err != nil {
		return err
	}
	if one != nil {
		c.Server, c.Name, c.CAFile = one.URL, cmp.Or(c.Name, one.Name), cmp.Or(c.CAFile, one.CAFile)
	}
	u, err := url.Parse(c.Server)
	if err != nil {
		return terminal.Usagef("%q: must be a URL such as https://events.example.com", c.Server)
	}
	c.Name = cmp.Or(c.Name, u.Host)
	switch {
	case !rest.ServerName.MatchString(c.Name):
		return terminal.Usagef("--name %q: must be %s", c.Name, rest.ServerNameRule)
	case !slices.Contains([]string{"", "viewer", "operator", "admin"}, c.Role):
		return terminal.Usagef("--role %q: must be viewer, operator or admin", c.Role)
	}
	if c.CAFile != "" {
		if c.CAFile, err = filepath.Abs(c.CAFile); err != nil {
			return err
		}
	}
	host, _ := os.Hostname()
	c.Machine = cmp.Or(c.Machine, host, "unknown")
	return rest.RequireSecret(c.Server)
}

// authorize begins a login and waits until a user has approved it. It returns the personal key.
func (c *LoginCmd) authorize(ctx context.Context, client *rest.Client) (key string, err error) {
	request := rest.Object{"machine": c.Machine}
	rest.SetText(request, "role", c.Role)
	var begun management.LoginBegun
	err = client.Call(ctx, http.MethodPost, "/v1/logins", request, &begun)
	if rest.IsStatus(err, http.StatusNotFound) {
		err = fmt.Errorf("%s does not support logins; check the URL and the server's version: %w", client.Base, err)
	}
	if err != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "Open this page, sign in, and compare the code:\n\n  %s\n\n  code: %s\n\n",
		terminal.Cell(begun.VerificationURIComplete), terminal.Cell(begun.UserCode))
	if !c.NoBrowser {
		openBrowser(ctx, begun.VerificationURIComplete)
	}
	err = terminal.Await("the login is approved", func() (err error) {
		key, err = poll(ctx, client, &begun)
		return err
	})
	return key, err
}

// poll waits until the login is approved, and returns the key. It continues while the server does not respond.
func poll(ctx context.Context, client *rest.Client, begun *management.LoginBegun) (key string, err error) {
	interval := max(time.Duration(begun.IntervalInSeconds)*time.Second, time.Second)
	expires := time.Now().Add(time.Duration(begun.ExpiresInSeconds) * time.Second)
	for pause(ctx, interval) == nil {
		var status management.LoginStatus
		err := client.Call(ctx, http.MethodPost, "/v1/logins/poll", rest.Object{"deviceCode": begun.DeviceCode}, &status)
		switch {
		case rest.IsStatus(err, http.StatusNotFound) || err != nil && time.Now().After(expires):
			return "", errors.New("the login was not approved in time; run postrider login again")
		case rest.IsStatus(err, http.StatusTooManyRequests):
			interval += time.Second // like RFC 8628's slow_down
		case err != nil:
		case status.State == "denied":
			return "", errors.New("the login was denied")
		case status.State == "approved" && status.APIKey != nil:
			return status.APIKey.Key, nil
		}
	}
	return "", errors.New("the login was interrupted; nothing was stored")
}

// openBrowser opens a page if standard input is the terminal of a desktop. Without a browser the user has the printed
// address.
func openBrowser(ctx context.Context, page string) {
	u, err := url.Parse(page)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || !terminal.IsTerminal(os.Stdin) ||
		!terminal.IsTerminal(os.Stderr) {
		return // the server's address must not name a program or a file
	}
	command := []string{"xdg-open"}
	switch {
	case runtime.GOOS == "darwin":
		command = []string{"open"}
	case runtime.GOOS == "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler"}
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return
	}
	opener := exec.CommandContext(ctx, command[0], append(command[1:], u.String())...)
	if opener.Start() == nil {
		go func() { _ = opener.Wait() }()
	}
}

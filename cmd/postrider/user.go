package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"postrider/internal/access"
	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

type userCmd struct {
	Add      userAddCmd                  `cmd:"" help:"Add a user who may sign in to the dashboard."`
	List     accountListCmd[access.User] `cmd:"" help:"List the users." example:"user list"`
	Show     accountShowCmd[access.User] `cmd:"" help:"Show a user." example:"user show anna"`
	Role     userRoleCmd                 `cmd:"" help:"Change the role of a user. Their sessions end, and the role limits their personal keys." example:"user role anna operator"`
	Password userPasswordCmd             `cmd:"" help:"Change the password of a user. Their sessions and personal keys end." detail:"The old password is not required." example:"user password anna"`
	Query    userQueryCmd                `cmd:"" help:"Allow a user to run SQL queries, or not. By default operators and admins may." example:"user query anna off"`
	Disable  userSwitchCmd               `cmd:"" help:"Disable a user. Their sessions and personal keys end." detail:"Name, role and password stay, so that you can enable the user again. You can also disable the last admin; user enable or the admin token restores access." example:"user disable anna"`
	Enable   userSwitchCmd               `cmd:"" help:"Enable a disabled user." example:"user enable anna"`
	Remove   userRemoveCmd               `cmd:"" help:"Remove a user. Their sessions and personal keys end." detail:"The audit keeps the name." example:"user remove anna; user remove anna --yes"`
}

// passwordFlag chooses the source of a password. A password is no argument: other users see the arguments of processes,
// and the shell stores them.
type passwordFlag struct {
	PasswordStdin bool `help:"Read the password from standard input, without the line break at its end (default: prompt on the terminal)."`
}

// read returns the password. Package access checks it.
func (f passwordFlag) read(std terminal.Streams) (string, error) {
	if f.PasswordStdin {
		raw, err := io.ReadAll(io.LimitReader(std.In, access.MaxPassword+3))
		if err != nil {
			return "", fmt.Errorf("read the password: %w", err)
		}
		return string(bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte("\n")), []byte("\r"))), nil
	}
	if !terminal.IsTerminal(std.In) {
		return "", terminal.Usagef("standard input is not a terminal: use --password-stdin to read the password from it")
	}
	once, err := prompt(std, "Password: ")
	if err != nil {
		return "", err
	}
	again, err := prompt(std, "Repeat password: ")
	if err != nil {
		return "", err
	}
	if once != again {
		return "", terminal.Usagef("the two passwords differ")
	}
	return once, nil
}

// prompt reads a line of a terminal without echo.
func prompt(std terminal.Streams, question string) (string, error) {
	fmt.Fprint(std.Err, question)
	raw, err := term.ReadPassword(int(std.In.(*os.File).Fd())) // terminal.IsTerminal has checked it
	fmt.Fprintln(std.Err)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	return string(raw), nil
}

// put creates or changes the user under the condition in headers. It prints done, a format of the name and the
// arguments.
func (o *oneAccount) put(
	ctx context.Context, std terminal.Streams, client *rest.Client, spec rest.Object, headers []string, done string,
	args ...any,
) error {
	return o.Do(ctx, std, client, http.MethodPut, rest.ItemURL(usersPath, o.Name), spec, func(w io.Writer, _ rest.Object) {
		fmt.Fprintf(w, done+"\n", append([]any{o.Name}, args...)...)
	}, headers...)
}

// change is put for a user that must exist. The API requires a role: by default it stays as it is.
func (o *oneAccount) change(
	ctx context.Context, std terminal.Streams, client *rest.Client, spec rest.Object, done string, args ...any,
) error {
	var u rest.Object
	if err := client.Call(ctx, http.MethodGet, rest.ItemURL(usersPath, o.Name), nil, &u); err != nil {
		return err
	}
	if spec["role"] == nil {
		spec["role"] = u["role"]
	}
	return o.put(ctx, std, client, spec, []string{"If-Match", rest.TextAt(u, "etag")}, done, args...)
}

type userAddCmd struct {
	oneAccount
	passwordFlag
	Role string `required:"" enum:"viewer,operator,admin" help:"Role of the user: viewer, operator or admin." placeholder:"ROLE"`
}

func (userAddCmd) Help() string {
	return `Examples:
  postrider user add anna --role admin
  printf %s "$PASSWORD" | postrider user add anna --role viewer --password-stdin`
}

func (c *userAddCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	exists := fmt.Errorf("user %s exists already: change it with user role or user password", c.Name)
	// Before the password is typed.
	err := client.Call(ctx, http.MethodGet, rest.ItemURL(usersPath, c.Name), nil, nil)
	if err == nil {
		return exists
	}
	if !rest.IsStatus(err, http.StatusNotFound) {
		return err
	}
	password, err := c.read(std)
	if err != nil {
		return err
	}
	err = c.put(ctx, std, client, rest.Object{"role": c.Role, "password": password}, []string{"If-None-Match", "*"},
		"User %s was added, with the role %s.", c.Role)
	if rest.IsStatus(err, http.StatusPreconditionFailed) {
		return exists
	}
	return err
}

type userRoleCmd struct {
	oneAccount
	Role string `arg:"" enum:"viewer,operator,admin" help:"viewer, operator or admin."`
}

func (c *userRoleCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	return c.change(ctx, std, client, rest.Object{"role": c.Role}, "User %s has the role %s.", c.Role)
}

type userQueryCmd struct {
	oneAccount
	Query string `arg:"" enum:"on,off" help:"on or off."`
}

func (c *userQueryCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	return c.change(ctx, std, client, rest.Object{"query": c.Query == "on"}, "User %s %s run SQL queries.",
		terminal.Either(c.Query == "on", "may", "may not"))
}

type userPasswordCmd struct {
	oneAccount
	passwordFlag
}

func (c *userPasswordCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	// Before the password is typed.
	if err := client.Call(ctx, http.MethodGet, rest.ItemURL(usersPath, c.Name), nil, nil); err != nil {
		return err
	}
	password, err := c.read(std)
	if err != nil {
		return err
	}
	return c.change(ctx, std, client, rest.Object{"password": password}, "User %s has a new password.")
}

// userSwitchCmd is user disable and user enable.
type userSwitchCmd struct{ oneAccount }

func (c *userSwitchCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client, k *kong.Context) error {
	verb := k.Selected().Name
	return c.change(ctx, std, client, rest.Object{"disabled": verb == "disable"}, "User %s was "+verb+"d.")
}

type userRemoveCmd struct {
	oneAccount
	terminal.ConfirmFlag
}

func (c *userRemoveCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	path := rest.ItemURL(usersPath, c.Name)
	if err := c.Confirm(std, func() (string, error) {
		var u rest.Object
		if err := client.Call(ctx, http.MethodGet, path, nil, &u); err != nil {
			return "", err
		}
		sessions, _ := strconv.Atoi(rest.TextAt(u, "sessions"))
		return fmt.Sprintf("Remove user %s (%s)? Name, role, password and personal keys are lost, and %s will end.",
			c.Name, rest.TextAt(u, "role"), terminal.Plural(sessions, "session")), nil
	}); err != nil {
		return err
	}
	return c.Delete(ctx, std, client, path, "User "+c.Name+" was removed.", rest.Object{"name": c.Name})
}

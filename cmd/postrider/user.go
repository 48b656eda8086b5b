package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/term"

	"postrider/internal/access"
	"postrider/internal/terminal"
)

type userCmd struct {
	Add      userAddCmd      `cmd:"" help:"Add a user who may sign in to the dashboard."`
	List     userListCmd     `cmd:"" help:"List the users." example:"user list"`
	Show     userShowCmd     `cmd:"" help:"Show a user." example:"user show anna"`
	Role     userRoleCmd     `cmd:"" help:"Change the role of a user. Their sessions end, and the role limits their personal keys." example:"user role anna operator"`
	Password userPasswordCmd `cmd:"" help:"Change the password of a user. Their sessions and personal keys end." detail:"The old password is not required." example:"user password anna"`
	Query    userQueryCmd    `cmd:"" help:"Allow a user to run SQL queries, or not. By default operators and admins may." example:"user query anna off"`
	Disable  userDisableCmd  `cmd:"" help:"Disable a user. Their sessions and personal keys end." detail:"Name, role and password stay, so that you can enable the user again. You can also disable the last admin; user enable or the admin token restores access." example:"user disable anna"`
	Enable   userEnableCmd   `cmd:"" help:"Enable a disabled user." example:"user enable anna"`
	Remove   userRemoveCmd   `cmd:"" help:"Remove a user. Their sessions and personal keys end." detail:"The audit keeps the name." example:"user remove anna; user remove anna --yes"`
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
	file, ok := std.In.(*os.File)
	if !ok {
		return "", errors.New("standard input is not a terminal")
	}
	fmt.Fprint(std.Err, question)
	raw, err := term.ReadPassword(int(file.Fd()))
	fmt.Fprintln(std.Err)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	return string(raw), nil
}

// oneUser has the flags of verbs about one user.
type oneUser struct {
	accountFlags
	Name string `arg:"" help:"Name of the user."`
}

// put creates or changes the user and prints done, a format of the name and the arguments.
func (o *oneUser) put(
	ctx context.Context, std terminal.Streams, a accounts, spec access.UserSpec, done string, args ...any,
) error {
	if _, err := a.PutUser(ctx, o.Name, spec); err != nil {
		return err
	}
	return o.Done(std.Out, func() (any, error) { return a.User(ctx, o.Name) }, done, append([]any{o.Name}, args...)...)
}

// change is put for a user that must exist.
func (o *oneUser) change(
	ctx context.Context, std terminal.Streams, a accounts, spec access.UserSpec, done string, args ...any,
) error {
	if _, err := a.User(ctx, o.Name); err != nil {
		return err
	}
	return o.put(ctx, std, a, spec, done, args...)
}

type userAddCmd struct {
	oneUser
	passwordFlag
	Role string `required:"" enum:"viewer,operator,admin" help:"Role of the user: viewer, operator or admin." placeholder:"ROLE"`
}

func (userAddCmd) Help() string {
	return `Examples:
  postrider user add anna --role admin
  printf %s "$PASSWORD" | postrider user add anna --role viewer --password-stdin`
}

func (c *userAddCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	_, err := a.User(ctx, c.Name)
	if err == nil {
		return fmt.Errorf("user %s exists already: change it with user role or user password", c.Name)
	}
	if !isMissing(err) {
		return err
	}
	password, err := c.read(std)
	if err != nil {
		return err
	}
	return c.put(ctx, std, a, access.UserSpec{Role: access.Role(c.Role), Password: &password},
		"User %s was added, with the role %s.", c.Role)
}

type userListCmd struct{ accountFlags }

func (c *userListCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	list, err := a.Users(ctx, "", math.MaxInt32)
	if err != nil {
		return err
	}
	return c.Print(std.Out, list, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tROLE\tQUERIES\tSTATE\tSESSIONS\tLAST SIGNED IN\tADDED BY")
		for _, u := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", u.Name, u.Role, onOff(u.Query), userState(&u), u.Sessions,
				timeOr("never", u.LastSignInAt), u.CreatedBy)
		}
	})
}

func onOff(on bool) string { return terminal.Either(on, "on", "off") }

func userState(u *access.User) string { return terminal.Either(u.Disabled, "disabled", "active") }

type userShowCmd struct{ oneUser }

func (c *userShowCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	u, err := a.User(ctx, c.Name)
	if err != nil {
		return err
	}
	return c.Print(std.Out, u, func(w io.Writer) {
		terminal.PrintNamed(w, "name", u.Name, "role", u.Role, "queries", onOff(u.Query), "state", userState(u),
			"sessions", u.Sessions,
			"last signed in", timeOr("never", u.LastSignInAt), "added", u.CreatedAt, "added by", u.CreatedBy)
	})
}

type userRoleCmd struct {
	oneUser
	Role string `arg:"" enum:"viewer,operator,admin" help:"viewer, operator or admin."`
}

func (c *userRoleCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	return c.change(ctx, std, a, access.UserSpec{Role: access.Role(c.Role)}, "User %s has the role %s.", c.Role)
}

type userQueryCmd struct {
	oneUser
	Query string `arg:"" enum:"on,off" help:"on or off."`
}

func (c *userQueryCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	return c.change(ctx, std, a, access.UserSpec{Query: new(c.Query == "on")}, "User %s %s run SQL queries.",
		terminal.Either(c.Query == "on", "may", "may not"))
}

type userPasswordCmd struct {
	oneUser
	passwordFlag
}

func (c *userPasswordCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	if _, err := a.User(ctx, c.Name); err != nil { // before the password is typed
		return err
	}
	password, err := c.read(std)
	if err != nil {
		return err
	}
	return c.put(ctx, std, a, access.UserSpec{Password: &password}, "User %s has a new password.")
}

type userDisableCmd struct{ oneUser }

func (c *userDisableCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	return c.change(ctx, std, a, access.UserSpec{Disabled: new(true)}, "User %s was disabled.")
}

type userEnableCmd struct{ oneUser }

func (c *userEnableCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	return c.change(ctx, std, a, access.UserSpec{Disabled: new(false)}, "User %s was enabled.")
}

type userRemoveCmd struct {
	oneUser
	terminal.ConfirmFlag
}

func (c *userRemoveCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	if err := c.Confirm(std, func() (string, error) {
		u, err := a.User(ctx, c.Name)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("Remove user %s (%s)? Name, role, password and personal keys are lost, and %s will end.",
			c.Name, u.Role, terminal.Plural(u.Sessions, "session")), nil
	}); err != nil {
		return err
	}
	if err := a.DeleteUser(ctx, c.Name); err != nil {
		return err
	}
	return c.Done(std.Out, terminal.Deleted("name", c.Name), "User %s was removed.", c.Name)
}

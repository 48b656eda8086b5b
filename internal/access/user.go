package access

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// User is a person who signs in to the dashboard.
type User struct {
	// Name. The audit has user:NAME.
	Name string `json:"name" column:"Name" list:"/v1/users"`
	Role Role   `json:"role" enum:"viewer,operator,admin" column:"Role"`
	// Whether the user may run SQL queries.
	Query bool `json:"query" column:"Queries"`
	// The user cannot sign in.
	Disabled bool `json:"disabled" column:"Disabled"`
	// Number of open sessions.
	Sessions int `json:"sessions" column:"Sessions"`
	// When the user last signed in; null means never.
	LastSignInAt *time.Time `json:"lastSignInAt" column:"Last signed in" none:"never"`
	CreatedAt    time.Time  `json:"createdAt" line:"Added"`
	CreatedBy    string     `json:"createdBy" column:"Added by"`
	// When role, password or disabled were last changed.
	ChangedAt  time.Time  `json:"changedAt"`
	DisabledAt *time.Time `json:"-"`
	// Version of role, password and disabled, for If-Match.
	Version postgres.Version `json:"etag"`
}

// UserSpec are the settings of a user.
//
// "" and nil leave those of an existing user; a new one needs a role and a password, and is not disabled.
type UserSpec struct {
	Role Role `json:"role" enum:"viewer,operator,admin"`
	// 12 to 1,024 bytes that are hard to guess: the user's name, common passwords, sequences and dates are rejected.
	// Required for a new user.
	Password *string `json:"password,omitempty" format:"password" minLength:"12" maxLength:"1024"`
	// true prevents the user from signing in.
	Disabled *bool `json:"disabled,omitempty"`
	// Whether the user may run SQL queries; by default as operator and admin.
	Query *bool `json:"query,omitempty"`
}

var userName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{1,62}$`)

// userNameRule is what the name of a user may be, in words.
const userNameRule = "2 to 63 letters, digits, dots, underscores, at signs and hyphens, the first a letter or digit"

// userVersion is the column that Version is read from.
const userVersion = "(extract(epoch FROM changed_at) * 1000000)::bigint AS version"

const userColumns = "SELECT name, role, disabled, created_at, created_by, changed_at, disabled_at, last_sign_in_at, " +
	"sessions, query, " + userVersion + " FROM postrider.users "

// Users lists users by name, after the given name, at most limit. ErrUnavailable.
func (a *Access) Users(ctx context.Context, after string, limit int) ([]User, error) {
	return postgres.Collect[User](ctx, a.db, userColumns+"WHERE name > $1 ORDER BY name LIMIT $2", after, limit)
}

// User finds a user by name; *FunctionError, which is ErrNotFound. ErrUnavailable.
func (a *Access) User(ctx context.Context, name string) (*User, error) {
	if !userName.MatchString(name) {
		return nil, noUser(name) // PostgreSQL may not accept it
	}
	return one[User](ctx, a.db, noUser(name), userColumns+"WHERE name = $1", name)
}

// HasUsers reports whether there is a user, disabled or not. ErrUnavailable.
func (a *Access) HasUsers(ctx context.Context) (has bool, err error) {
	if err := a.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM postrider_internal.users)").Scan(&has); err != nil {
		return false, postgres.ReadError("the users", err)
	}
	return has, nil
}

// CreateFirstAdmin creates the first user, an administrator. ErrNotFirst; ErrInvalid; ErrUnavailable.
func (a *Access) CreateFirstAdmin(ctx context.Context, name, password string) error {
	spec := UserSpec{Role: RoleAdmin, Password: &password}
	hash, err := spec.validate(ctx, name)
	if err != nil {
		return err
	}
	return a.amongUsers(ctx, "create the first user", func(tx pgx.Tx) error {
		var others bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM postrider_internal.users)").Scan(&others); err != nil {
			return err
		}
		if others {
			return ErrNotFirst
		}
		return insertUser(ctx, tx, name, &spec, hash)
	})
}

// PutUser creates or changes a user; made reports which. A new role or password, or disabling, ends the user's
// sessions. A new password or disabling also ends their personal keys. After a new role those allow what both roles
// allow. *FunctionError: ErrInvalid, ErrConflict if an existing name differs only in letter case, or ErrLastAdmin if a
// user or an API key removes the last administrator who can sign in. ErrPrecondition; ErrUnavailable.
func (a *Access) PutUser(
	ctx context.Context, name string, spec UserSpec, when ...postgres.Condition,
) (made bool, err error) {
	hash, err := spec.validate(ctx, name)
	if err != nil {
		return false, err
	}
	err = a.amongUsers(ctx, "change a user", func(tx pgx.Tx) error {
		var was User
		var id int64
		const query = "SELECT id, role, disabled_at IS NOT NULL, postrider_internal.may_query(query, role), " + userVersion +
			" FROM postrider_internal.users WHERE name = $1"
		err := tx.QueryRow(ctx, query, name).Scan(&id, &was.Role, &was.Disabled, &was.Query, &was.Version)
		if made = errors.Is(err, pgx.ErrNoRows); made {
			if err := postgres.CheckConditions(when, 0); err != nil {
				return err
			}
			return insertUser(ctx, tx, name, &spec, hash)
		}
		if err != nil {
			return err
		}
		if err := postgres.CheckConditions(when, was.Version); err != nil {
			return err
		}
		return changeUser(ctx, tx, id, name, &was, &spec, hash)
	})
	return made, err
}

// validate rejects invalid settings, and hashes the password, before anything is locked.
func (s *UserSpec) validate(ctx context.Context, name string) (hash string, err error) {
	if !userName.MatchString(name) {
		return "", postgres.Invalid("name", "name must be %s", userNameRule)
	}
	if s.Role != "" && !s.Role.Allows(RoleViewer) {
		return "", postgres.Invalid("role", "role must be viewer, operator or admin")
	}
	if s.Password == nil {
		return "", nil
	}
	return hashPassword(ctx, name, *s.Password)
}

func insertUser(ctx context.Context, tx pgx.Tx, name string, spec *UserSpec, hash string) error {
	const insert = `INSERT INTO postrider_internal.users (name, password_hash, role, created_by, disabled_at, query)
		VALUES ($1, $2, $3, $4, CASE WHEN $5 THEN now() END, $6)`
	const like = `SELECT name FROM postrider_internal.users WHERE lower(name COLLATE "C") = lower($1 COLLATE "C")`
	if spec.Role == "" {
		return postgres.Invalid("role", "role is required for a new user: viewer, operator or admin")
	}
	if hash == "" {
		return postgres.Invalid("password", "password is required for a new user")
	}
	if err := postgres.NameFree(ctx, tx, "user", like, name); err != nil {
		return err
	}
	disabled := spec.Disabled != nil && *spec.Disabled
	_, err := tx.Exec(ctx, insert, name, hash, string(spec.Role), ActorOf(ctx).Name, disabled, spec.Query)
	if err != nil {
		return err
	}
	details := map[string]any{"role": spec.Role}
	if disabled {
		details["disabled"] = true
	}
	settings := Settings{"role": spec.Role, "disabled": disabled}
	if spec.Query != nil {
		settings["query"] = *spec.Query
	}
	made := Changes(nil, settings)
	return auditUser(ctx, tx, auditUserCreated, name, details, made)
}

// changeUser writes the differences, if any.
func changeUser(ctx context.Context, tx pgx.Tx, id int64, name string, was *User, spec *UserSpec, hash string) error {
	is := User{Role: cmp.Or(spec.Role, was.Role), Disabled: was.Disabled, Query: was.Query}
	if spec.Disabled != nil {
		is.Disabled = *spec.Disabled
	}
	if spec.Query != nil {
		is.Query = *spec.Query
	}
	details := map[string]any{}
	if is.Role != was.Role {
		details["role"] = is.Role
	}
	if is.Disabled != was.Disabled {
		details["disabled"] = is.Disabled
	}
	if hash != "" {
		details["password"] = true
	}
	signsOut := len(details) > 0
	if is.Query != was.Query {
		details["query"] = is.Query
	}
	if len(details) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, sql("user_update"), id, string(is.Role), is.Disabled, hash, spec.Query); err != nil {
		return err
	}
	if err := rejectLastAdmin(ctx, tx, was); err != nil {
		return err
	}
	if signsOut {
		if _, err := endSessions(ctx, tx, id); err != nil {
			return err
		}
	}
	if hash != "" || is.Disabled {
		if _, err := endPersonalKeys(ctx, tx, id); err != nil {
			return err
		}
	}
	found := Changes(Settings{"role": was.Role, "disabled": was.Disabled, "query": was.Query},
		Settings{"role": is.Role, "disabled": is.Disabled, "query": is.Query})
	if hash != "" {
		found["password"] = Changed
	}
	return auditUser(ctx, tx, auditUserReplaced, name, details, found)
}

// DeleteUser removes a user with their private queries and ends their sessions. The audit keeps the name.
// *FunctionError, which is ErrNotFound, or ErrLastAdmin as for PutUser; ErrPrecondition.
func (a *Access) DeleteUser(ctx context.Context, name string, when ...postgres.Condition) error {
	if !userName.MatchString(name) {
		return noUser(name)
	}
	return a.amongUsers(ctx, "delete a user", func(tx pgx.Tx) error {
		id, err := userID(ctx, tx, name)
		if err != nil {
			return err
		}
		_, details, err := endAccess(ctx, tx, id)
		if err != nil {
			return err
		}
		var was User
		const remove = "DELETE FROM postrider_internal.users WHERE id = $1 RETURNING role, disabled_at IS NOT NULL, " +
			userVersion
		if err := tx.QueryRow(ctx, remove, id).Scan(&was.Role, &was.Disabled, &was.Version); err != nil {
			return err
		}
		if err := postgres.CheckConditions(when, was.Version); err != nil {
			return err
		}
		if err := rejectLastAdmin(ctx, tx, &was); err != nil {
			return err
		}
		// A later user of this name gets none of the queries: private ones go, shared ones get an owner who is no actor.
		const queries = `WITH private AS (DELETE FROM postrider_internal.queries WHERE owner = $1 AND NOT shared)
			UPDATE postrider_internal.queries SET owner = 'removed:' || $2 WHERE owner = $1 AND shared`
		if _, err := tx.Exec(ctx, queries, userActor+name, name); err != nil {
			return err
		}
		removed := Changes(Settings{"role": was.Role, "disabled": was.Disabled}, nil)
		return auditUser(ctx, tx, auditUserDeleted, name, details, removed)
	})
}

// rejectLastAdmin rejects a change that leaves no administrator, unless the actor has the admin token or the database's
// URL, which need none.
func rejectLastAdmin(ctx context.Context, tx pgx.Tx, was *User) error {
	if was.Role != RoleAdmin || was.Disabled || !ActorOf(ctx).hasStoredCredential() {
		return nil
	}
	var left bool
	const query = "SELECT EXISTS (SELECT FROM postrider_internal.users WHERE role = 'admin' AND disabled_at IS NULL)"
	if err := tx.QueryRow(ctx, query).Scan(&left); err != nil {
		return err
	}
	if !left {
		return postgres.NewFunctionError(ErrLastAdmin, "",
			"no administrator could sign in after this; only the admin token may do it")
	}
	return nil
}

func userID(ctx context.Context, tx pgx.Tx, name string) (id int64, err error) {
	if !userName.MatchString(name) {
		return 0, noUser(name)
	}
	err = tx.QueryRow(ctx, "SELECT id FROM postrider_internal.users WHERE name = $1", name).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, noUser(name)
	}
	return id, err
}

func noUser(name string) error {
	return postgres.NewFunctionError(postgres.ErrNotFound, "name", "there is no user %q", name)
}

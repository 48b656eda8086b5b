package server

import (
	"context"
	"errors"
	"net/http"

	"postrider/store"
)

// ListUsers answers GET /v1/users.
func (m *management) ListUsers(ctx context.Context, r ListUsersRequestObject) (ListUsersResponseObject, error) {
	page, err := readPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := m.store.Access().Users(ctx, page.after, page.limit+1)
	if err != nil {
		return nil, err
	}
	shown, next := cut(page, list, "/v1/users", func(u store.User) string { return u.Name })
	answer := ListUsers200JSONResponse{Value: []User{}, NextLink: next}
	for i := range shown {
		answer.Value = append(answer.Value, DescribeUser(&shown[i]))
	}
	return answer, nil
}

// PutUser answers PUT /v1/users/{user}.
func (m *management) PutUser(ctx context.Context, r PutUserRequestObject) (PutUserResponseObject, error) {
	if r.Body.Role == "" {
		return nil, invalid("role", "is required: viewer, operator or admin")
	}
	spec := store.UserSpec{Role: store.Role(r.Body.Role), Password: r.Body.Password, Disabled: r.Body.Disabled}
	when, err := conditions(r.Params.IfMatch, r.Params.IfNoneMatch)
	if err != nil {
		return nil, err
	}
	made, err := m.store.Access().PutUser(ctx, r.User, spec, when...)
	if errors.Is(err, store.ErrPrecondition) {
		return nil, preconditionFailed("user", r.User, r.Params.IfMatch)
	}
	if err != nil {
		return nil, err
	}
	u, err := m.store.Access().User(ctx, r.User)
	if err != nil {
		return nil, err
	}
	if made {
		return PutUser201JSONResponse{Body: DescribeUser(u), Headers: PutUser201ResponseHeaders{ETag: etagOf(u.Version())}}, nil
	}
	return PutUser200JSONResponse{Body: DescribeUser(u), Headers: PutUser200ResponseHeaders{ETag: etagOf(u.Version())}}, nil
}

// GetUser answers GET /v1/users/{user}.
func (m *management) GetUser(ctx context.Context, r GetUserRequestObject) (GetUserResponseObject, error) {
	if !storable(r.User) {
		return nil, userNotFound(r.User)
	}
	u, err := m.store.Access().User(ctx, r.User)
	if err != nil {
		return nil, err
	}
	return GetUser200JSONResponse{Body: DescribeUser(u), Headers: GetUser200ResponseHeaders{ETag: etagOf(u.Version())}}, nil
}

// DeleteUser answers DELETE /v1/users/{user}.
func (m *management) DeleteUser(ctx context.Context, r DeleteUserRequestObject) (DeleteUserResponseObject, error) {
	if !storable(r.User) {
		return nil, userNotFound(r.User)
	}
	when, err := conditions(r.Params.IfMatch, nil)
	if err != nil {
		return nil, err
	}
	err = m.store.Access().DeleteUser(ctx, r.User, when...)
	if errors.Is(err, store.ErrPrecondition) {
		return nil, preconditionFailed("user", r.User, r.Params.IfMatch)
	}
	if err != nil {
		return nil, err
	}
	return DeleteUser204Response{}, nil
}

// DescribeUser is the user as the REST API and `user list -o json` write them.
func DescribeUser(u *store.User) User {
	return User{
		Name: u.Name, Role: UserRole(u.Role), Disabled: u.Disabled, Etag: etagOf(u.Version()), CreatedAt: u.CreatedAt.UTC(), CreatedBy: u.CreatedBy, ChangedAt: u.ChangedAt.UTC(),
		LastSignInAt: utcOrNull(u.LastSignInAt), FailedSignIns: u.FailedSignIns, LockedUntil: utcOrNull(u.LockedUntil), Sessions: u.Sessions,
	}
}

func userNotFound(name string) error {
	return refuse(http.StatusNotFound, codeNotFound, "there is no user %q", shorten(name))
}

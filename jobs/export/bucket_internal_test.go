package export

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
	"postrider/jobs/endpoint"
)

// cloud is a server with all hosts of Amazon and Microsoft that are needed.
type cloud struct {
	*http.ServeMux
	address string

	mu   sync.Mutex
	puts []*http.Request
}

// RoundTrip sends any request to the server.
func (c *cloud) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := r.Clone(r.Context())
	sent.Host, sent.URL.Scheme, sent.URL.Host = r.URL.Host, "http", c.address
	return http.DefaultTransport.RoundTrip(sent)
}

func (c *cloud) respond(pattern string, body any) {
	c.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		if text, ok := body.(string); ok {
			_, _ = io.WriteString(w, text)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	})
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{ServeMux: http.NewServeMux()}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.address = server.Listener.Addr().String()

	role := map[string]any{
		"Code": "Success", "AccessKeyId": "by-instance", "SecretAccessKey": "s", "Token": "t",
		"Expiration": time.Now().Add(time.Hour),
	}
	c.respond("169.254.169.254/latest/api/token", "imds-token")
	c.respond("169.254.169.254/latest/meta-data/iam/security-credentials/", "node")
	c.respond("169.254.169.254/latest/meta-data/iam/security-credentials/node", role)
	c.HandleFunc("sts.eu-west-1.amazonaws.com/", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("WebIdentityToken") != "pod-token" || r.FormValue("RoleArn") != "arn:aws:iam::1:role/writer" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
			<AssumeRoleWithWebIdentityResult><Credentials>
			<AccessKeyId>by-web-identity</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
			<Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	})
	const entra = "https://login.microsoftonline.com/tenant/"
	c.respond("login.microsoftonline.com/common/discovery/instance", map[string]any{
		"tenant_discovery_endpoint": entra + "v2.0/.well-known/openid-configuration", "metadata": []map[string]any{{
			"preferred_network": "login.microsoftonline.com", "preferred_cache": "login.windows.net",
			"aliases": []string{"login.microsoftonline.com"},
		}},
	})
	c.respond("login.microsoftonline.com/tenant/v2.0/.well-known/openid-configuration", map[string]any{
		"token_endpoint": entra + "oauth2/v2.0/token", "authorization_endpoint": entra + "oauth2/v2.0/authorize",
		"issuer": entra + "v2.0",
	})
	c.HandleFunc("login.microsoftonline.com/tenant/oauth2/v2.0/token", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("client_assertion") != "pod-token" || r.FormValue("client_id") != "client" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"access_token":"by-workload-identity","expires_in":3600,"token_type":"Bearer"}`)
	})
	c.respond("169.254.169.254/metadata/identity/oauth2/token", map[string]any{
		"access_token": "by-managed-identity", "expires_in": "3600", "token_type": "Bearer",
		"expires_on": fmt.Sprint(time.Now().Add(time.Hour).Unix()), "resource": "https://storage.azure.com",
	})
	c.HandleFunc("PUT /", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.puts = append(c.puts, r)
		w.Header().Set("ETag", `"x"`)
		if strings.HasPrefix(r.Header.Get("X-Ms-Blob-Type"), "Block") {
			w.WriteHeader(http.StatusCreated)
		}
	})
	return c
}

// clearVariables removes what this machine may have.
func clearVariables(t *testing.T) {
	t.Helper()
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "AZURE_") || strings.HasPrefix(name, "IDENTITY_") {
			t.Setenv(name, "")
			require.NoError(t, os.Unsetenv(name))
		}
	}
}

// open returns Locations whose connections end before the servers that were started before.
func open(t *testing.T) *Locations {
	t.Helper()
	l := NewLocations(endpointconf.ExportLocations{})
	t.Cleanup(l.Close)
	return l
}

func write(t *testing.T, locations *Locations, location string) error {
	t.Helper()
	l, err := endpointconf.ParseLocation(location)
	require.NoError(t, err)
	return locations.Write(t.Context(), endpointconf.ExportTarget{Location: l, Path: "a b"}, "x.json", []byte("[]"))
}

// Each kind of credentials is found, and is used for the server that the parameters name.
func TestCredentialsOfLocations(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	files := t.TempDir()
	aws, token := filepath.Join(files, "aws"), filepath.Join(files, "token")
	require.NoError(t, os.WriteFile(token, []byte("pod-token"), 0o600))
	require.NoError(t, os.WriteFile(aws, []byte("[default]\naws_access_key_id = by-file\naws_secret_access_key = s\n"+
		"[other]\naws_access_key_id = by-profile\naws_secret_access_key = s\n"), 0o600))
	pod := map[string]string{"AZURE_FEDERATED_TOKEN_FILE": token, "AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_ID": "client"}
	for name, c := range map[string]struct {
		location  string
		variables map[string]string
		credible  string // in the header Authorization
		url       string
	}{
		"environment": {
			"s3://dead/in?region=eu-west-1", map[string]string{
				"AWS_ACCESS_KEY_ID": "by-environment", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SHARED_CREDENTIALS_FILE": aws,
			}, "Credential=by-environment/", "dead.s3.eu-west-1.amazonaws.com/in/a%20b/x.json",
		},
		"shared file": {
			"s3://dead?region=eu-west-1&dualstack=true",
			map[string]string{"AWS_SHARED_CREDENTIALS_FILE": aws},
			"Credential=by-file/", "dead.s3.dualstack.eu-west-1.amazonaws.com/a%20b/x.json",
		},
		"profile of the location": {
			"s3://dead?profile=other&use_path_style=true", map[string]string{
				"AWS_SHARED_CREDENTIALS_FILE": aws, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "s",
				"AWS_REGION": "eu-west-1",
			}, "Credential=by-profile/", "s3.eu-west-1.amazonaws.com/dead/a%20b/x.json",
		},
		"profile of the environment": {
			"s3://dead?endpoint=https://s3.example:9000", map[string]string{
				"AWS_SHARED_CREDENTIALS_FILE": aws, "AWS_PROFILE": "other",
			}, "Credential=by-profile/", "dead.s3.example:9000/a%20b/x.json",
		},
		"web identity": {
			"s3://dead?accelerate=true", map[string]string{
				"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:aws:iam::1:role/writer", "AWS_REGION": "eu-west-1",
			}, "Credential=by-web-identity/", "dead.s3-accelerate.amazonaws.com/a%20b/x.json",
		},
		"instance": {
			"s3://dead?region=eu-west-1", nil, "Credential=by-instance/", "dead.s3.eu-west-1.amazonaws.com/a%20b/x.json",
		},
		"key": {
			"azblob://dead/in",
			map[string]string{"AZURE_STORAGE_ACCOUNT": "acct", "AZURE_STORAGE_KEY": "c2VjcmV0"},
			"SharedKey acct:", "acct.blob.core.windows.net/dead/in/a%20b/x.json",
		},
		"key of an emulator": {
			"azblob://dead?storage_account=acct&protocol=http&domain=azurite:10000&localemu=true",
			map[string]string{"AZURE_STORAGE_KEY": "c2VjcmV0"},
			"SharedKey acct:", "azurite:10000/acct/dead/a%20b/x.json",
		},
		"SAS": {
			"azblob://dead", map[string]string{
				"AZURE_STORAGE_ACCOUNT": "acct", "AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=signed",
				"AZURE_STORAGE_DOMAIN": "cdn.example", "AZURE_STORAGE_IS_CDN": "true",
			}, "", "cdn.example/dead/a%20b/x.json?sig=signed&sv=1",
		},
		"managed identity": {
			"azblob://dead?storage_account=acct&domain=blob.core.chinacloudapi.cn", nil, "Bearer by-managed-identity",
			"acct.blob.core.chinacloudapi.cn/dead/a%20b/x.json",
		},
		"workload identity": {
			"azblob://dead?storage_account=acct", pod, "Bearer by-workload-identity",
			"acct.blob.core.windows.net/dead/a%20b/x.json",
		},
	} {
		t.Run(name, func(t *testing.T) {
			clearVariables(t)
			for name, value := range c.variables {
				t.Setenv(name, value)
			}
			server, locations := newCloud(t), open(t)
			locations.client.Transport = server
			for range 2 {
				require.NoError(t, write(t, locations, c.location))
			}
			require.Len(t, server.puts, 2)
			for _, put := range server.puts {
				require.Contains(t, put.Header.Get("Authorization"), c.credible)
				where := put.Host + strings.ReplaceAll(put.RequestURI, "%2F", "/")
				require.Equal(t, c.url, where)
			}
		})
	}
}

// Without usable credentials nothing is sent, not even an anonymous request.
func TestCredentialsMissing(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	unreadable := filepath.Join(t.TempDir(), "missing")
	for name, c := range map[string]struct {
		location, says string
		variables      map[string]string
	}{
		"half a key": {
			"s3://dead?region=eu-west-1", "no credentials for S3 (no key): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
			map[string]string{"AWS_ACCESS_KEY_ID": "id"},
		},
		"no shared file": {
			"s3://dead?region=eu-west-1&profile=x", "no credentials for S3 (",
			map[string]string{"AWS_SHARED_CREDENTIALS_FILE": unreadable},
		},
		"no web identity": {
			"s3://dead?region=eu-west-1", "no credentials for S3 (",
			map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": unreadable},
		},
		"no region":        {"s3://dead", "set region=… in the location, or AWS_REGION", nil},
		"no bucket's name": {"s3://x", "the location names no bucket of S3", nil},
		"no account":       {"azblob://dead", "set AZURE_STORAGE_ACCOUNT, or storage_account=", nil},
		"no key": {
			"azblob://dead?storage_account=a", "AZURE_STORAGE_KEY must be", map[string]string{"AZURE_STORAGE_KEY": "%"},
		},
		"no workload identity": {
			"azblob://dead?storage_account=a", "no credentials for Azure: set AZURE_STORAGE_KEY", map[string]string{
				"AZURE_FEDERATED_TOKEN_FILE": unreadable, "AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_ID": "client",
			},
		},
		"token of another server": {
			"azblob://dead?domain=evil.example", "must not send AZURE_STORAGE_SAS_TOKEN to another server",
			map[string]string{"AZURE_STORAGE_ACCOUNT": "acct", "AZURE_STORAGE_SAS_TOKEN": "sig=planted"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clearVariables(t)
			for name, value := range c.variables {
				t.Setenv(name, value)
			}
			server, locations := newCloud(t), open(t)
			locations.client.Transport = server
			err := write(t, locations, c.location)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, err.Error(), ErrorText(err))
			require.NotContains(t, err.Error(), "planted")
			require.Empty(t, server.puts)
		})
	}
}

// A rejected request says what to do. No error has a secret, and no redirect is followed.
func TestErrorsOfBuckets(t *testing.T) {
	clearVariables(t)
	var requests int
	var status int
	var code string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("X-Ms-Error-Code", code)
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>the server's</Message></Error>", code)
	}))
	t.Cleanup(server.Close)
	t.Setenv("AZURE_STORAGE_ACCOUNT", "acct")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=planted")
	t.Setenv("AZURE_STORAGE_PROTOCOL", "http")
	t.Setenv("AZURE_STORAGE_DOMAIN", server.Listener.Addr().String())
	s3 := "s3://dead?anonymous=true&endpoint=" + server.URL
	for _, row := range []struct {
		location string
		status   int
		code     string
		requests int
		want     string
	}{
		{s3, 403, "AccessDenied", 1, "the location responded with AccessDenied: grant the right s3:PutObject"},
		{s3, 404, "NoSuchBucket", 1, "the location responded with NoSuchBucket: create the bucket or correct the location"},
		{s3, 400, "Odd", 1, "the location responded with Odd: the server's"},
		{s3, 307, "TemporaryRedirect", 1, "the location responded with TemporaryRedirect: the server's"},
		{s3, 503, "SlowDown", tries, "the location responded with SlowDown: the server's"},
		{"azblob://dead", 404, "ContainerNotFound", 1, "the location responded with 404 ContainerNotFound: create the " +
			"container or correct the location"},
		{"azblob://dead", 403, "AuthenticationFailed", 1, "the location responded with 403 AuthenticationFailed: " +
			azureDenied},
		{"azblob://dead", 307, "", 1, "the location responded with 307"},
		{"azblob://dead", 503, "ServerBusy", tries, "the location responded with 503 ServerBusy"},
	} {
		requests, status, code = 0, row.status, row.code
		locations := open(t)
		err := write(t, locations, row.location)
		locations.Close()
		require.EqualError(t, err, row.want)
		require.Equal(t, row.want, ErrorText(err))
		require.NotContains(t, endpoint.OriginalError(err).Error(), "planted")
		require.Equal(t, row.requests, requests, row.want)
	}

	server.Close()
	for _, location := range []string{s3, "azblob://dead"} {
		err := write(t, open(t), location)
		require.Contains(t, ErrorText(err), "connection refused by ")
		require.NotContains(t, err.Error(), "planted")
	}
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	l, err := endpointconf.ParseLocation(s3)
	require.NoError(t, err)
	err = open(t).Write(ended, endpointconf.ExportTarget{Location: l}, "x", nil)
	require.Equal(t, "it was not written within 60 s", ErrorText(err))
}

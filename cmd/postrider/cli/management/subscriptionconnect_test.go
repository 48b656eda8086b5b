package management

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/cmd/postrider/cli/rest"
)

func TestConnectionFlags(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	f := connectionFlags{
		MinimumTLS: "1.3", CertificateAuthorities: file("CA\n"), ClientCertificate: file("CERT\n"), ClientKey: file("KEY\n"),
		OAuth2TokenURL: "https://login.example.com/token", OAuth2ClientID: "postrider",
		OAuth2ClientSecretFile: file("s3cret\n"), OAuth2Scope: "api://orders/.default",
	}
	settings := rest.Object{}
	require.NoError(t, f.connection(settings))
	require.JSONEq(t, `{"minimumTlsVersionAllowed":"1.3","certificateAuthorities":"CA",`+
		`"clientCertificate":{"certificate":"CERT","privateKey":"KEY"},
		"oauth2":{"tokenUrl":"https://login.example.com/token","clientId":"postrider","clientSecret":"s3cret",`+
		`"scope":"api://orders/.default"}}`, encoded(t, settings))
	settings = rest.Object{}
	require.NoError(t, (&connectionFlags{}).connection(settings))
	require.Empty(t, settings)
	require.Error(t, (&connectionFlags{ClientKey: "/none"}).connection(settings))
}

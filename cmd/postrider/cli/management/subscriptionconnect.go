package management

import (
	"strings"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// connectionFlags are how an endpoint is connected to, see docs/endpoints.md.
type connectionFlags struct {
	MinimumTLS             string `name:"minimum-tls-version-allowed" group:"Beyond the Azure CLI:" help:"1.2 or 1.3." placeholder:"VERSION"`
	CertificateAuthorities string `group:"Beyond the Azure CLI:" help:"The endpoint's certificate must come from one of those in this file (PEM)." placeholder:"FILE"`
	ClientCertificate      string `group:"Beyond the Azure CLI:" help:"Certificate (PEM) to be shown to the endpoint, its chain below it." placeholder:"FILE"`
	ClientKey              string `group:"Beyond the Azure CLI:" help:"Its private key (PEM), not encrypted." placeholder:"FILE"`
	OAuth2TokenURL         string `name:"oauth2-token-url" group:"Beyond the Azure CLI:" help:"Each request carries a token that comes from here, by client credentials." placeholder:"URL"`
	OAuth2ClientID         string `name:"oauth2-client-id" group:"Beyond the Azure CLI:" help:"Whose token." placeholder:"ID"`
	OAuth2ClientSecretFile string `name:"oauth2-client-secret-file" group:"Beyond the Azure CLI:" help:"Its secret is in this file; - reads it from standard input." placeholder:"FILE"`
	OAuth2Scope            string `name:"oauth2-scope" group:"Beyond the Azure CLI:" help:"What for, such as api://orders/.default." placeholder:"SCOPE"`
}

// connection reads the files that the flags name.
func (f *connectionFlags) connection(s rest.Object) error {
	rest.SetText(s, "minimumTlsVersionAllowed", f.MinimumTLS)
	certificate, tokens := rest.Object{}, rest.Object{}
	rest.SetText(tokens, "tokenUrl", f.OAuth2TokenURL)
	rest.SetText(tokens, "clientId", f.OAuth2ClientID)
	rest.SetText(tokens, "scope", f.OAuth2Scope)
	for _, file := range []struct {
		name, member string
		of           rest.Object
	}{
		{f.CertificateAuthorities, "certificateAuthorities", s},
		{f.ClientCertificate, "certificate", certificate},
		{f.ClientKey, "privateKey", certificate},
		{f.OAuth2ClientSecretFile, "clientSecret", tokens},
	} {
		if file.name == "" {
			continue
		}
		text, err := terminal.ReadFileOrInput(file.name)
		if err != nil {
			return err
		}
		file.of[file.member] = strings.TrimRight(string(text), "\r\n")
	}
	setObject(s, "clientCertificate", certificate)
	setObject(s, "oauth2", tokens)
	return nil
}

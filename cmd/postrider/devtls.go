package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"postrider/cmd/postrider/local"
)

// How long dev's certificates last, and how long before their end new ones are made. Clients refuse server certificates
// of more than 398 days.
const (
	devCALasts     = 10 * 365 * 24 * time.Hour
	devServerLasts = 397 * 24 * time.Hour
	devRenewBefore = 30 * 24 * time.Hour
	devClockSkew   = time.Hour
)

// devHosts are the names that dev's server certificate is for: this machine's own.
var devHosts = []string{"localhost", "127.0.0.1", "::1"}

// devTLS is the folder of dev's own certificate authority and the server certificate it has signed.
type devTLS struct{ dir string }

func (d devTLS) caFile() string    { return filepath.Join(d.dir, "ca.pem") }
func (d devTLS) caKeyFile() string { return filepath.Join(d.dir, "ca-key.pem") }
func (d devTLS) server() tlsFlags {
	return tlsFlags{TLSCert: filepath.Join(d.dir, "server.pem"), TLSKey: filepath.Join(d.dir, "server-key.pem")}
}

// prepare makes what is missing, does not fit together, or ends soon. A kept authority stays, so that whoever trusts it
// goes on doing so.
func (d devTLS) prepare(now time.Time) error {
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return fmt.Errorf("make dev's certificates: %w", err)
	}
	later := now.Add(devRenewBefore)
	ca, err := d.keptCA(later)
	if err != nil {
		if ca, err = d.makeCA(now); err != nil {
			return fmt.Errorf("make dev's certificate authority: %w", err)
		}
	}
	if d.keptServer(ca, later) {
		return nil
	}
	if err := d.makeServer(ca, now); err != nil {
		return fmt.Errorf("make dev's server certificate: %w", err)
	}
	return nil
}

func (d devTLS) keptCA(later time.Time) (tls.Certificate, error) {
	ca, err := tls.LoadX509KeyPair(d.caFile(), d.caKeyFile())
	if err == nil && later.After(ca.Leaf.NotAfter) {
		err = fmt.Errorf("it ends at %s", ca.Leaf.NotAfter)
	}
	return ca, err
}

func (d devTLS) keptServer(ca tls.Certificate, later time.Time) bool {
	kept, err := tls.LoadX509KeyPair(d.server().TLSCert, d.server().TLSKey)
	if err != nil {
		return false
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	for _, host := range devHosts {
		if _, err := kept.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: later, DNSName: host}); err != nil {
			return false
		}
	}
	return true
}

// makeCA makes an authority that can sign for this machine's own names alone: whoever trusts it trusts it for nothing
// else, even if its key gets into other hands.
func (d devTLS) makeCA(now time.Time) (tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "postrider dev, this machine only"},
		NotBefore: now.Add(-devClockSkew), NotAfter: now.Add(devCALasts),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{"localhost"},
		PermittedIPRanges: []*net.IPNet{
			{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
			{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
		},
	}
	return issue(template, nil, d.caFile(), d.caKeyFile())
}

func (d devTLS) makeServer(ca tls.Certificate, now time.Time) error {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "localhost"},
		NotBefore: now.Add(-devClockSkew), NotAfter: now.Add(devServerLasts),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range devHosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	_, err := issue(template, &ca, d.server().TLSCert, d.server().TLSKey)
	return err
}

// issue makes a key and a certificate for it, signed by the authority or, without one, by itself, and writes both.
func issue(
	template *x509.Certificate, ca *tls.Certificate, certFile, keyFile string,
) (made tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return made, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return made, err
	}
	parent, signer := template, any(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return made, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return made, err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	if err := local.ReplaceFile(keyFile, 0o600, keyPEM); err != nil {
		return made, err
	}
	if err := local.ReplaceFile(certFile, 0o644, certPEM); err != nil {
		return made, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

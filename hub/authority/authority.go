// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/spokelet/spokelet/tunnel/identity"
)

const (
	// DefaultSecretName is the Secret that keeps the CA and the hub id.
	DefaultSecretName = "spokelet-ca"
	// DefaultCertificateLife is the life of a cluster's certificate.
	DefaultCertificateLife = 90 * 24 * time.Hour
	// minCertificateLife leaves room for a renewal beside the clock skew.
	minCertificateLife = 10 * time.Minute
)

// Config says where the authority is kept and what it issues.
type Config struct {
	// Secrets reaches the API server directly; Secrets are not cached.
	Secrets typedcorev1.SecretsGetter
	// Namespace of the Secret: the hub's own.
	Namespace string
	// SecretName defaults to DefaultSecretName.
	SecretName string
	// CertificateLife of clusters, of the hub itself and of its servers;
	// defaults to DefaultCertificateLife. Never beyond the CA's own end.
	CertificateLife time.Duration
	// Now defaults to time.Now.
	Now func() time.Time
	// Logger tells of a CA that was made or replaced.
	Logger logr.Logger
}

// Default fills in what was left out.
func (c *Config) Default() {
	if c.SecretName == "" {
		c.SecretName = DefaultSecretName
	}
	if c.CertificateLife == 0 {
		c.CertificateLife = DefaultCertificateLife
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

// Validate reports what cannot work.
func (c *Config) Validate() error {
	if c.Secrets == nil {
		return errors.New("authority: no client for Secrets")
	}
	if c.Namespace == "" {
		return errors.New("authority: no namespace")
	}
	if c.CertificateLife < minCertificateLife {
		return fmt.Errorf("authority: certificate life %s is shorter than %s", c.CertificateLife, minCertificateLife)
	}
	return nil
}

// Authority signs certificates in the name of one hub. It is safe for
// concurrent use.
type Authority struct {
	config Config

	mu       sync.Mutex
	material *material        // guarded by mu; replaced as a whole
	hub      *tls.Certificate // guarded by mu; the hub's own, nil until asked for
	onChange []func()         // guarded by mu
}

// Open reads the authority from its Secret, and makes it when there is none.
// Its errors wrap ErrIncomplete, ErrMismatch or ErrInvalid where the Secret is
// at fault; the Secret is then left as it is.
func Open(ctx context.Context, config Config) (*Authority, error) {
	config.Default()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	a := &Authority{config: config}
	secret, err := a.getOrCreateSecret(ctx)
	if err != nil {
		return nil, fmt.Errorf("CA secret %s/%s: %w", config.Namespace, config.SecretName, err)
	}
	m, err := parseMaterial(secret.Data, config.Now())
	if err != nil {
		return nil, fmt.Errorf("CA secret %s/%s: %w", config.Namespace, config.SecretName, err)
	}
	a.material = m
	return a, nil
}

func (a *Authority) getOrCreateSecret(ctx context.Context) (*corev1.Secret, error) {
	secrets := a.config.Secrets.Secrets(a.config.Namespace)
	found, err := secrets.Get(ctx, a.config.SecretName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return found, err
	}
	data, err := newMaterial(a.config.Now())
	if err != nil {
		return nil, err
	}
	created, err := secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: a.config.SecretName, Namespace: a.config.Namespace},
		Data:       data,
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// Another replica was first. What we made was never used: take theirs.
		return secrets.Get(ctx, a.config.SecretName, metav1.GetOptions{})
	}
	if err == nil {
		a.config.Logger.Info("certificate authority created: back up its secret, no agent can connect without it",
			"namespace", a.config.Namespace, "secret", a.config.SecretName)
	}
	return created, err
}

// HubID is the UUID that every certificate of this hub names.
func (a *Authority) HubID() string { return a.getMaterial().hubID }

// Fingerprint is the SHA-256 of the signing CA's certificate (DER), in hex. A
// joining agent is told it beforehand, so that it trusts nobody else.
func (a *Authority) Fingerprint() string { return fingerprint(a.getMaterial().certificate) }

// Bundle is every CA certificate to trust, PEM, the signing one first.
func (a *Authority) Bundle() []byte { return a.getMaterial().bundle }

// OnChange calls f, from then on, after the CA or the bundle was replaced. f
// must not block.
func (a *Authority) OnChange(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onChange = append(a.onChange, f)
}

// TLS returns the certificate that the hub shows to agents, renewed before two
// thirds of its life have passed, and the CAs to verify theirs with. It is to
// be asked at each handshake. The chain holds the CA's certificate too: an
// agent that joins knows only its fingerprint.
func (a *Authority) TLS() (*tls.Certificate, *x509.CertPool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.config.Now()
	if a.hub == nil || isRenewalDue(a.hub.Leaf, now) {
		hub, err := a.material.sign(newHubTemplate(a.material.hubID), a.config.CertificateLife, now)
		if err != nil {
			return nil, nil, fmt.Errorf("hub certificate: %w", err)
		}
		a.hub = hub
	}
	return a.hub, a.material.pool, nil
}

// IssueCluster signs a certificate for exactly the given cluster and the key of
// the request, which the caller has checked with identity.CheckRequest: nothing
// else of the request is taken over. It returns the chain and the trust bundle,
// PEM.
func (a *Authority) IssueCluster(cluster identity.Cluster, request *x509.CertificateRequest) (chain, bundle []byte, err error) {
	m := a.getMaterial()
	if cluster.HubID != m.hubID {
		return nil, nil, fmt.Errorf("cluster %q: hub id %q is not this hub's", cluster.Name, cluster.HubID)
	}
	der, err := m.issue(newClusterTemplate(cluster), request.PublicKey, a.config.CertificateLife, a.config.Now())
	if err != nil {
		return nil, nil, fmt.Errorf("cluster %q: %w", cluster.Name, err)
	}
	return encodeCertificates(der), m.bundle, nil
}

func (a *Authority) getMaterial() *material {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.material
}

// replace installs what the Secret says now. A Secret that cannot be used, or
// that belongs to another hub, changes nothing: the hub goes on with what it has.
func (a *Authority) replace(data map[string][]byte) error {
	m, err := parseMaterial(data, a.config.Now())
	if err != nil {
		return err
	}
	listeners, err := a.install(m)
	if err != nil {
		return err
	}
	for _, f := range listeners {
		f()
	}
	return nil
}

func (a *Authority) install(m *material) ([]func(), error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.hubID != a.material.hubID {
		return nil, fmt.Errorf("%w: hub id changed from %q to %q under a running hub", ErrMismatch, a.material.hubID, m.hubID)
	}
	if bytes.Equal(m.bundle, a.material.bundle) {
		return nil, nil
	}
	a.config.Logger.Info("certificate authority replaced",
		"fingerprint", fingerprint(m.certificate), "trusted", len(m.trusted))
	a.material, a.hub = m, nil
	return slices.Clone(a.onChange), nil
}

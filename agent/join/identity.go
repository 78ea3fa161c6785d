// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"github.com/spokelet/spokelet/internal/watcher"
	"github.com/spokelet/spokelet/tunnel/identity"
)

const (
	// DefaultSecretName is the Secret that keeps the identity.
	DefaultSecretName = "spokelet-agent-identity"
	// SecretType of that Secret.
	SecretType = "spokelet.io/agent-identity" //nolint:gosec // a type, not a credential
)

// Config says whose identity is kept where.
type Config struct {
	Secrets typedcorev1.SecretsGetter
	// Namespace of the Secret: the agent's own.
	Namespace string
	// SecretName defaults to DefaultSecretName.
	SecretName string
	// Cluster is the name under which the cluster joins, a DNS label.
	Cluster string
	Logger  logr.Logger
}

// Default fills in what was left out.
func (c *Config) Default() {
	if c.SecretName == "" {
		c.SecretName = DefaultSecretName
	}
}

// Validate reports what cannot work.
func (c *Config) Validate() error {
	if c.Secrets == nil || c.Namespace == "" {
		return errors.New("identity: no client for secrets or no namespace")
	}
	return identity.ValidateName(c.Cluster)
}

// keyPair is a private key in both of its forms.
type keyPair struct {
	key crypto.Signer
	pem []byte
}

// Identity is the agent's key and certificate. It is the tunnel's Credentials,
// and safe for concurrent use.
type Identity struct {
	config Config

	mu      sync.Mutex
	keyPair               // guarded by mu; that of current
	asked   *keyPair      // guarded by mu; that of the renewal asked for last, nil without one
	current *credentials  // guarded by mu; nil until joined
	saved   bool          // guarded by mu; the Secret holds current
	changed chan struct{} // guarded by mu; closed and replaced when current changes
	problem error         // guarded by mu; why the cluster cannot join, nil when it can or need not

	// refused holds a refusal that has not been looked at.
	refused chan refusal
}

// Open reads the identity from its Secret, and makes the key when there is none.
// Of replicas that start together the first one's key is everyone's.
func Open(ctx context.Context, config Config) (*Identity, error) {
	config.Default()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	i := &Identity{config: config, changed: make(chan struct{}), refused: make(chan refusal, 1)}
	secret, err := i.ensure(ctx)
	if err == nil {
		err = i.adopt(secret)
	}
	if err != nil {
		return nil, fmt.Errorf("identity secret %s/%s: %w", config.Namespace, config.SecretName, err)
	}
	return i, nil
}

func (i *Identity) ensure(ctx context.Context) (*corev1.Secret, error) {
	secrets := i.secrets()
	found, err := secrets.Get(ctx, i.config.SecretName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return found, err
	}
	pair, err := newPrivateKey()
	if err != nil {
		return nil, err
	}
	created, err := secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: i.config.SecretName, Namespace: i.config.Namespace},
		Type:       SecretType,
		Data:       map[string][]byte{keyPrivate: pair.pem},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// Another replica was first. Our key was never used: take theirs.
		return secrets.Get(ctx, i.config.SecretName, metav1.GetOptions{})
	}
	return created, err
}

func (i *Identity) secrets() typedcorev1.SecretInterface {
	return i.config.Secrets.Secrets(i.config.Namespace)
}

// adopt takes over what the Secret holds. A Secret without a certificate, or
// with an older one, does not take away the one that is in use: a watch may tell
// late of what we have written over since.
func (i *Identity) adopt(secret *corev1.Secret) error {
	pair, stored, err := i.storedIn(secret)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != nil && (stored == nil || i.current.issuedAfter(stored)) {
		return nil
	}
	i.keyPair = pair
	if stored != nil {
		i.installLocked(stored, true)
	}
	return nil
}

func (i *Identity) installLocked(c *credentials, saved bool) {
	i.saved = saved
	if i.current != nil && bytes.Equal(i.current.chainPEM, c.chainPEM) && bytes.Equal(i.current.bundlePEM, c.bundlePEM) {
		return
	}
	i.current = c
	close(i.changed)
	i.changed = make(chan struct{})
}

// Certificate returns the certificate for the next connection, the authorities
// to trust for the hub, and the hub's id. The error wraps ErrNotJoined while
// there is none, and ErrExpired once it has ended: it is not to be shown again.
func (i *Identity) Certificate() (*tls.Certificate, *x509.CertPool, string, error) {
	current, _ := i.get()
	if current == nil {
		return nil, nil, "", fmt.Errorf("cluster %q: %w", i.config.Cluster, ErrNotJoined)
	}
	if end := current.leaf().NotAfter; time.Now().After(end) {
		return nil, nil, "", fmt.Errorf("cluster %q: %w at %s", i.config.Cluster, ErrExpired, stamp(end))
	}
	return current.certificate, current.authorities, current.cluster.HubID, nil
}

// HubID is the id of the hub that the cluster has joined, whether or not the
// certificate has ended since; empty before.
func (i *Identity) HubID() string {
	current, _ := i.get()
	if current == nil {
		return ""
	}
	return current.cluster.HubID
}

// Joined tells whether the cluster has ever had a certificate, valid or not.
func (i *Identity) Joined() bool { return i.HubID() != "" }

// get returns the credentials, nil when there are none, and a channel that is
// closed when they change.
func (i *Identity) get() (*credentials, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current, i.changed
}

// NewRequest returns a certificate request (PKCS#10, DER): for the certificate
// in use, with a new key, or, before the first, for the cluster's name.
//
// The new key is held in memory alone until its certificate comes, and then written
// with it. A crash in between loses both, and leaves the key and the certificate of
// before in the Secret, which are as good as they were.
func (i *Identity) NewRequest(context.Context) ([]byte, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current == nil {
		return identity.NewRequest(i.key, identity.Cluster{Name: i.config.Cluster})
	}
	pair, err := newPrivateKey()
	if err != nil {
		return nil, err
	}
	i.asked = &pair
	return identity.NewRequest(pair.key, i.current.cluster)
}

// firstRequest is the request of a cluster that joins: the id that the hub will
// give it, or has given it anew, is not known.
func (i *Identity) firstRequest() ([]byte, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return identity.NewRequest(i.key, identity.Cluster{Name: i.config.Cluster})
}

// Renewed installs a certificate and a trust bundle from the hub, PEM, and
// writes them to the Secret. An empty chain or bundle leaves that part as it is.
// The certificate must be for the same cluster, and for the key of the last request
// or that in use. When only the
// write fails, the new certificate is in use all the same.
func (i *Identity) Renewed(ctx context.Context, chain, bundle []byte) error {
	current, _ := i.get()
	if current == nil {
		return fmt.Errorf("cluster %q: %w", i.config.Cluster, ErrNotJoined)
	}
	if len(chain) == 0 {
		chain = current.chainPEM
	}
	if len(bundle) == 0 {
		bundle = current.bundlePEM
	}
	return i.install(ctx, chain, bundle, current.tokenHash, func(next *credentials) error {
		if next.cluster != current.cluster {
			return fmt.Errorf("%w: it is for %s, not %s", ErrAnswer, next.cluster, current.cluster)
		}
		return nil
	})
}

// install checks, takes over and writes a certificate and a bundle.
func (i *Identity) install(ctx context.Context, chain, bundle []byte, tokenHash string, check func(*credentials) error) error {
	next, used, err := i.parse(chain, bundle)
	if err != nil {
		return err
	}
	next.tokenHash = tokenHash
	if err := check(next); err != nil {
		return err
	}
	i.mu.Lock()
	i.keyPair = used
	i.installLocked(next, false)
	i.mu.Unlock()
	return i.save(ctx)
}

// parse checks a certificate of the key in use, or else of the one asked for last, and
// returns whose it is.
func (i *Identity) parse(chain, bundle []byte) (*credentials, keyPair, error) {
	i.mu.Lock()
	used, asked := i.keyPair, i.asked
	i.mu.Unlock()
	next, err := parseCredentials(used.key, i.config.Cluster, chain, bundle)
	if err == nil || asked == nil {
		return next, used, err
	}
	next, err = parseCredentials(asked.key, i.config.Cluster, chain, bundle)
	return next, *asked, err
}

// save writes the credentials in use to the Secret, unless it holds them.
func (i *Identity) save(ctx context.Context) error {
	i.mu.Lock()
	keyPEM, current, saved := i.pem, i.current, i.saved
	i.mu.Unlock()
	if saved {
		return nil
	}
	if err := i.write(ctx, keyPEM, current); err != nil {
		return fmt.Errorf("identity secret %s/%s: %w", i.config.Namespace, i.config.SecretName, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.saved = i.saved || i.current == current
	return nil
}

func (i *Identity) write(ctx context.Context, keyPEM []byte, next *credentials) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		secret, err := i.secrets().Get(ctx, i.config.SecretName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, stored, _ := i.storedIn(secret) // nil as well when it cannot be read
		if stored != nil && stored.issuedAfter(next) {
			return i.adopt(secret)
		}
		// A key without a certificate is that of a replica which joins anew, and whose
		// token is bound to it. One with an older certificate is replaced with it.
		if stored == nil && !bytes.Equal(secret.Data[keyPrivate], keyPEM) {
			return fmt.Errorf("%w: its key was replaced", ErrSecret)
		}
		secret.Data[keyPrivate] = keyPEM
		secret.Data[keyCertificate], secret.Data[keyBundle] = next.chainPEM, next.bundlePEM
		secret.Data[keyTokenHash] = []byte(next.tokenHash)
		_, err = i.secrets().Update(ctx, secret, metav1.UpdateOptions{})
		return err
	})
}

// storedIn reads the key of a Secret and the credentials of that key, nil when the
// Secret has no certificate yet.
func (i *Identity) storedIn(secret *corev1.Secret) (keyPair, *credentials, error) {
	raw, chain := secret.Data[keyPrivate], secret.Data[keyCertificate]
	key, err := parsePrivateKey(raw)
	if err != nil {
		return keyPair{}, nil, err
	}
	pair := keyPair{key: key, pem: raw}
	if len(chain) == 0 {
		return pair, nil, nil
	}
	stored, err := parseCredentials(key, i.config.Cluster, chain, secret.Data[keyBundle])
	if err != nil {
		return keyPair{}, nil, fmt.Errorf("%w; delete the secret to join anew", err)
	}
	stored.tokenHash = string(secret.Data[keyTokenHash])
	return pair, stored, nil
}

// Start watches the Secret until ctx ends, so that what one replica was given
// reaches the others. One object is watched, by name.
func (i *Identity) Start(ctx context.Context) error {
	log := i.config.Logger.WithValues("namespace", i.config.Namespace, "secret", i.config.SecretName)
	watcher.WatchSecret(ctx, i.secrets(), i.config.SecretName, i.observe, func() {
		log.Error(nil, "the identity secret was deleted; the agent keeps its copy and must join again after a restart")
	})
	return nil
}

func (i *Identity) observe(secret *corev1.Secret) {
	if err := i.adopt(secret); err != nil {
		i.config.Logger.Error(err, "cannot use the identity secret; the agent keeps its copy",
			"namespace", secret.Namespace, "secret", secret.Name)
	}
}

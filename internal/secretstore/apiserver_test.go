// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
)

const (
	agentNamespace = "spokelet-agent"
	// slow is how long a request takes where that matters.
	slow = 10 * time.Millisecond
)

var (
	errBoom  = errors.New("boom")
	resource = corev1.Resource("secrets")
)

// apiServer is a fake: the Secrets of one namespace, with versions, preconditions and pages
// as those of an API server. The live tests say whether it is like one.
type apiServer struct {
	mu sync.Mutex
	// All below are guarded by mu.
	secrets map[string]*corev1.Secret
	version int
	// late are requests that were given up and take effect before the next one.
	late []func()
	// counts says how many requests of each verb took effect, and bytes what was written.
	counts map[string]int
	bytes  int
}

func newAPIServer() *apiServer {
	return &apiServer{secrets: map[string]*corev1.Secret{}, counts: map[string]int{}}
}

// clone returns a server that has the same Secrets, and has served nothing.
func (a *apiServer) clone() *apiServer {
	a.mu.Lock()
	defer a.mu.Unlock()
	same := newAPIServer()
	for name, secret := range a.secrets {
		same.secrets[name] = secret.DeepCopy()
	}
	same.version = a.version
	return same
}

// outcome says what becomes of a request.
type outcome int

const (
	// served is as it should be.
	served outcome = iota
	// lost has no effect, answerless has one, delayed has one before the next request. All
	// three have an error.
	lost
	answerless
	delayed
)

// network decides about each request, before it is made and once more when it has arrived.
type network func(verb, name string) outcome

// client reaches the server through a network; nil is one without faults.
func (a *apiServer) client(n network) typedcorev1.SecretInterface {
	c := &fake.Clientset{}
	c.AddReactor("*", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj, err := a.request(n, action)
		return true, obj, err
	})
	return c.CoreV1().Secrets(agentNamespace)
}

func (a *apiServer) request(n network, action clienttesting.Action) (runtime.Object, error) {
	what := served
	if n != nil {
		what = n(action.GetVerb(), nameOf(action))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, do := range a.late {
		do()
	}
	a.late = nil
	switch what {
	case lost:
		return nil, errBoom
	case answerless:
		_, _ = a.serve(action)
		return nil, errBoom
	case delayed:
		a.late = append(a.late, func() { _, _ = a.serve(action) })
		return nil, errBoom
	default:
		return a.serve(action)
	}
}

func nameOf(action clienttesting.Action) string {
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		return action.Object.(*corev1.Secret).Name
	case clienttesting.UpdateActionImpl:
		return action.Object.(*corev1.Secret).Name
	case clienttesting.DeleteActionImpl:
		return action.Name
	case clienttesting.GetActionImpl:
		return action.Name
	}
	return ""
}

func (a *apiServer) serve(action clienttesting.Action) (runtime.Object, error) {
	obj, err := a.do(action)
	if err == nil {
		a.counts[action.GetVerb()]++
	}
	return obj, err
}

func (a *apiServer) do(action clienttesting.Action) (runtime.Object, error) {
	name := nameOf(action)
	there := a.secrets[name]
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		if there != nil {
			return nil, apierrors.NewAlreadyExists(resource, name)
		}
		return a.store(action.Object.(*corev1.Secret)), nil
	case clienttesting.UpdateActionImpl:
		secret := action.Object.(*corev1.Secret)
		if there == nil {
			return nil, apierrors.NewNotFound(resource, name)
		}
		if secret.ResourceVersion != there.ResourceVersion {
			return nil, apierrors.NewConflict(resource, name, errBoom)
		}
		return a.store(secret), nil
	case clienttesting.GetActionImpl:
		if there == nil {
			return nil, apierrors.NewNotFound(resource, name)
		}
		return there.DeepCopy(), nil
	case clienttesting.DeleteActionImpl:
		if there == nil {
			return nil, apierrors.NewNotFound(resource, name)
		}
		if p := action.DeleteOptions.Preconditions; p != nil && *p.ResourceVersion != there.ResourceVersion {
			return nil, apierrors.NewConflict(resource, name, errBoom)
		}
		delete(a.secrets, name)
		return nil, nil
	case clienttesting.ListActionImpl:
		return a.list(action.ListOptions), nil
	case clienttesting.DeleteCollectionActionImpl:
		for _, secret := range a.list(metav1.ListOptions{LabelSelector: action.ListOptions.LabelSelector}).Items {
			delete(a.secrets, secret.Name)
		}
		return nil, nil
	}
	return nil, errors.New("the fake API server does not know this request")
}

func (a *apiServer) store(secret *corev1.Secret) *corev1.Secret {
	secret = secret.DeepCopy()
	a.version++
	secret.ResourceVersion = strconv.Itoa(a.version)
	a.secrets[secret.Name] = secret
	a.bytes += len(secret.Data[dataKey])
	return secret.DeepCopy()
}

func (a *apiServer) list(opts metav1.ListOptions) *corev1.SecretList {
	list := &corev1.SecretList{}
	want, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		panic(err)
	}
	for _, name := range slices.Sorted(maps.Keys(a.secrets)) {
		if name <= opts.Continue || !want.Matches(labels.Set(a.secrets[name].Labels)) {
			continue
		}
		if opts.Limit > 0 && len(list.Items) == int(opts.Limit) {
			list.Continue = list.Items[len(list.Items)-1].Name
			break
		}
		list.Items = append(list.Items, *a.secrets[name].DeepCopy())
	}
	return list
}

// names are those of all Secrets.
func (a *apiServer) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.secrets))
}

// only returns the name of the only Secret.
func (a *apiServer) only(t testing.TB) string {
	t.Helper()
	names := a.names()
	if len(names) != 1 {
		t.Fatalf("Secrets are %v, want one", names)
	}
	return names[0]
}

// change is made by somebody else; nil deletes.
func (a *apiServer) change(name string, change func(*corev1.Secret)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if change == nil {
		delete(a.secrets, name)
		return
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{Label: "test"}}, Type: Type, Data: map[string][]byte{}}
	if there := a.secrets[name]; there != nil {
		secret = there.DeepCopy()
	}
	change(secret)
	a.store(secret)
}

// writes is how many requests changed something.
func (a *apiServer) writes() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts["create"] + a.counts["update"] + a.counts["delete"]
}

// count is how many requests of a verb took effect.
func (a *apiServer) count(verb string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[verb]
}

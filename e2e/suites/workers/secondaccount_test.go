// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// dave owns the namespace of the second account: he may write everything in it.
const dave = "dave"

// testSecondAccount is of an account that is in a first only, while the first one has both
// clusters.
func (s *tests) testSecondAccount(t *testing.T) {
	testbed.InOrder(t, 1,
		testbed.Step{Name: "the owner of a namespace may write there and nowhere else", Run: s.testOwnerWrites},
		testbed.Step{Name: "an account is given, and only once", Run: s.testAccountAssigned},
		testbed.Step{Name: "it is served beside the first", Run: s.testServedBesideOthers},
		testbed.Step{Name: "code of another account is out of reach", Run: s.testCodeOfOtherAccount},
		testbed.Step{Name: "a host is an administrator's to give", Run: s.testHostAssigned},
		testbed.Step{Name: "an image that was deleted is built again", Run: s.testImageDeleted},
	)
}

// saying is a script that answers with a text.
func saying(text string) map[string]string {
	return map[string]string{"index.js": fmt.Sprintf("export default { fetch() { return new Response(%q); } };\n", text)}
}

// sameName is what the second account's script of the first one's name answers.
const sameName = "another hello"

func (s *tests) testOwnerWrites(t *testing.T) {
	s.Hub.Apply(t, tenant(s.team, ""))
	s.Hub.Kubectl(t, "create", "rolebinding", "owner", "-n", s.team, "--clusterrole=admin", "--user="+dave)
	manifest := bad("hello", s.template("hello", ""))
	s.put(t, "hello", "1", saying(sameName))
	// API servers judge by caches, which new rights reach a moment later.
	testbed.Until(t, "dave may write", testbed.Settle, func(ctx context.Context) error {
		_, err := s.owner.RunInput(ctx, strings.NewReader(manifest), "apply", "-n", s.team, "-f", "-")
		return err
	})
	const first = "team-a"
	for reason, args := range map[string][]string{
		"accounts are an administrator's to give":   {"label", "namespace", s.team, "workers.spokelet.io/account=" + s.account},
		"so are clusters":                           {"annotate", "namespace", s.team, "workers.spokelet.io/clusters="},
		"so are hosts":                              {"annotate", "namespace", s.team, "workers.spokelet.io/hosts=*.example.com"},
		"another team's scripts are its own":        {"get", "workerdeployments,workerreleases,workerbundles", "-n", first},
		"and are changed by nobody else":            {"patch", "workerdeployment", "-n", first, "hello", "--type=merge", "-p", use("1234/hello/2")},
		"nor deleted":                               {"delete", "workerdeployment", "-n", first, "hello"},
		"a release's Secret is its team's":          {"get", "secrets", "-n", first},
		"the works of a cluster have all secrets":   {"get", "manifestworks", "-n", "spoke1"},
		"builds have the operator's credentials":    {"get", "secrets,jobs", "-n", "spokelet-workers"},
		"clusters are offered by administrators":    {"label", "managedcluster", "spoke1", "workers.spokelet.io/clusters=false", "--overwrite"},
		"what the operator makes is the operator's": {"delete", "workerbundle", "-n", s.team, s.bundle()},
	} {
		testbed.Refused(t, reason, s.owner, "", args, "forbidden")
	}
}

func (s *tests) testAccountAssigned(t *testing.T) {
	refused := func(what, reason string, words ...string) {
		t.Helper()
		s.waitForStatus(t, "hello", what, func(got status) error { return got.is("Accepted", "False", reason, words...) })
	}
	label := func(account string) {
		t.Helper()
		s.Hub.Kubectl(t, "label", "namespace", s.team, "--overwrite", "workers.spokelet.io/account="+account)
	}
	refused("nobody says whose the namespace is", "NoAccount", "workers.spokelet.io/account")
	label("1234")
	refused("an older namespace has the account", "AccountTaken", "1234", "team-a")
	label("No-Id")
	refused("that is no id", "NoAccount", "No-Id")
	label(s.account)
	s.waitForStatus(t, "hello", "there is no WorkerAccount", func(got status) error {
		return errors.Join(got.is("Accepted", "True", "Accepted"), got.is("Built", "False", "NoAccount", "WorkerAccount"))
	})
}

// numbers are the manifests of the document with the names that it has: numbers. The URLs
// have no bucket, and one WorkerRelease is of no WorkerDeployment.
const numbers = `
apiVersion: v1
kind: Secret
metadata: {name: "1234", labels: {workers.spokelet.io/script: "1234"}}
stringData: {DATABASE_URL: %[1]s}
---
apiVersion: api.worker-account/v1alpha1
kind: WorkerAccount
metadata: {name: "%[2]s"}
spec:
  workerBundleName: bundle-%[2]s
  workerReleaseSelector: {}
  podTemplate: {imagePullSecret: ""}
---
apiVersion: api.worker-deployment/v1alpha1
kind: WorkerDeployment
metadata: {name: "1234"}
spec:
  releaseHistoryLimit: 1
  template:
    scriptName: "1234"
    secretRef: "1234"
    compatibilityDate: 02/28/2023
    scriptsUrls: [%[2]s/1234/1]
---
apiVersion: api.worker-release/v1alpha1
kind: WorkerRelease
metadata: {name: by-hand}
spec:
  scriptName: by-hand
  compatibilityDate: "2023-02-28"
  scriptUrls: [%[2]s/by-hand/1]
`

const databaseURL = "postgres://somewhere/else"

// testServedBesideOthers: the account has the one cluster that its namespace is given.
func (s *tests) testServedBesideOthers(t *testing.T) {
	given := s.Spoke()
	s.Hub.Kubectl(t, "label", "managedcluster", given.Name, "--overwrite", "region=eu")
	s.Hub.Kubectl(t, "annotate", "namespace", s.team, "--overwrite", "workers.spokelet.io/clusters=region=eu")
	s.put(t, "1234", "1", map[string]string{"worker.js": "export default { fetch(request, env) { return new Response(env.DATABASE_URL); } };\n"})
	s.put(t, "by-hand", "1", saying("by hand"))
	s.apply(t, fmt.Sprintf(numbers, databaseURL, s.account))
	s.waitForBundle(t, 3, 1)
	s.waitForServedIn(t, given, "1234", databaseURL)
	s.waitForServedIn(t, given, "hello", sameName)
	s.waitForServedIn(t, given, "by-hand", "by hand")
	s.waitForReady(t, "1234")
	s.waitForReady(t, "hello")
	s.checkSecretNotExposed(t, databaseURL)
	_, err := s.Spokes[1].Kube.CoreV1().Namespaces().Get(t.Context(), s.inSpoke(), metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("%s, which it is not given, has its namespace: %v", s.Spokes[1].Name, err)
	}
}

// testCodeOfOtherAccount: the prefix is what the other account's script is served from.
func (s *tests) testCodeOfOtherAccount(t *testing.T) {
	for name, url := range map[string]string{"with-bucket": "s3://" + s.store.Bucket + "/1234/hello/1", "bare": "1234/hello/1"} {
		s.apply(t, bad(name, s.template(name, fmt.Sprintf("scriptUrls: [%q]", url))))
		s.waitForStatus(t, name, "names the code that is not its own", func(got status) error {
			return got.is("Accepted", "False", "Invalid", url, s.account)
		})
		s.Hub.Kubectl(t, "delete", "workerdeployment", "-n", s.team, name)
	}
}

// rival is an account without scripts, which names a host.
const rival = `
{apiVersion: v1, kind: Namespace, metadata: {name: team-c, labels: {workers.spokelet.io/account: "9abc"}, annotations: {workers.spokelet.io/hosts: shop.example.com}}}
---
{apiVersion: api.worker-account/v1alpha1, kind: WorkerAccount, metadata: {name: "9abc", namespace: team-c}, spec: {workerBundleName: rival, host: shop.example.com}}
`

// testHostAssigned: each account has a name of its own, and chooses others among those that an
// administrator gave its namespace, as long as no other account has them.
func (s *tests) testHostAssigned(t *testing.T) {
	told := func(what, host, value, reason string, words ...string) {
		t.Helper()
		s.change(t, "workeraccount", s.account, fmt.Sprintf(`{"spec":{"host":%q}}`, host))
		s.waitForStatusOf(t, accountsResource, s.account, what, func(got status) error { return got.is("Routed", value, reason, words...) })
	}
	all := []string{"/1234", "/by-hand", "/hello"}
	s.waitForRoute(t, s.account+"."+hostSuffix, all...)
	told("names the other account's own name", "1234."+hostSuffix, "False", "HostNotAllowed", hostSuffix)
	told("names a host that nobody gave it", "shop.example.com", "False", "HostNotAllowed", "workers.spokelet.io/hosts")
	s.waitForRoute(t, "")
	testbed.Refused(t, "a host has one spelling", s.owner, "",
		[]string{"patch", "workeraccount", "-n", s.team, s.account, "--type=merge", "-p", `{"spec":{"host":"Shop.example.com"}}`}, "spec.host")
	testbed.Refused(t, "whose a host is the operator says", s.owner, "",
		[]string{"patch", "workeraccount", "-n", s.team, s.account, "--subresource=status", "--type=merge", "-p", `{"status":{"host":"shop.example.com"}}`}, "forbidden")

	s.Hub.Apply(t, rival)
	r := s.other("9abc", "team-c", "")
	r.waitForStatusOf(t, accountsResource, r.account, "has the host", func(got status) error { return got.is("Routed", "True", "Routed") })
	s.Hub.Kubectl(t, "annotate", "namespace", s.team, "--overwrite", "workers.spokelet.io/hosts=*.example.com")
	told("names a host that another account has", "shop.example.com", "False", "HostTaken", "shop.example.com")
	s.Hub.Kubectl(t, "delete", "namespace", r.team, "--timeout=180s")
	told("has the host once nobody has it", "shop.example.com", "True", "Routed")
	s.waitForRoute(t, "shop.example.com", all...)
	first := s.other("1234", "team-a", "")
	for _, spoke := range s.Spokes {
		if host, paths, err := first.routes(t.Context(), spoke); err != nil || host != "1234."+hostSuffix || !slices.Contains(paths, "/hello") {
			t.Errorf("%s: the first account's are %q on host %q, %v", spoke.Name, paths, host, err)
		}
	}
}

// waitForRoute waits until the Ingress of the first cluster has a host and paths, or until there
// is none, for no host.
func (s *tests) waitForRoute(t *testing.T, host string, paths ...string) {
	t.Helper()
	testbed.Until(t, fmt.Sprintf("an Ingress of host %q with %q", host, paths), testbed.Settle, func(ctx context.Context) error {
		gotHost, got, err := s.routes(ctx, s.Spoke())
		if err != nil {
			return err
		}
		if diff := cmp.Diff(append([]string{host}, paths...), append([]string{gotHost}, got...)); diff != "" {
			return fmt.Errorf("host and paths (-want +got):\n%s", diff)
		}
		return nil
	})
}

// routes are the host and paths of the account's Ingress in a cluster; none without one.
func (s *tests) routes(ctx context.Context, spoke *testbed.Site) (host string, paths []string, err error) {
	ingress, err := spoke.Kube.NetworkingV1().Ingresses(s.inSpoke()).Get(ctx, s.bundle(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	for _, rule := range ingress.Spec.Rules {
		host = rule.Host
		for _, path := range rule.HTTP.Paths {
			paths = append(paths, path.Path)
		}
	}
	return host, paths, nil
}

// testImageDeleted: a cluster that comes later has to read the image, and it is gone. A node that
// has run it does not ask for it again: it keeps a copy, which the clusters of tests have no way
// to take away.
func (s *tests) testImageDeleted(t *testing.T) {
	image := s.image(t)
	if err := s.images.Delete(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	if there, err := s.images.Has(t.Context(), image); err != nil || there {
		t.Fatalf("it is there: %v, %v", there, err)
	}
	s.Hub.Kubectl(t, "annotate", "namespace", s.team, "workers.spokelet.io/clusters-")
	testbed.Until(t, "the image is there again", testbed.Settle, func(ctx context.Context) error {
		there, err := s.images.Has(ctx, image)
		if err == nil && !there {
			err = errors.New("it is not")
		}
		return err
	})
	s.waitForBundle(t, 3, 2)
	s.waitForServed(t, "1234", databaseURL)
	s.waitForServed(t, "hello", sameName)
	if after := s.image(t); after != image {
		t.Errorf("it is another image, %s, than %s", after, image)
	}
	events, err := s.Hub.Kube.CoreV1().Events(s.team).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=ImageMissing"})
	if err != nil || len(events.Items) == 0 || !strings.Contains(events.Items[0].Message, image) {
		t.Errorf("events are %+v, %v", events, err)
	}
}

// testNamespaceDeleted: the second account, which the end of the first one did not touch, ends
// with all that it has.
func (s *tests) testNamespaceDeleted(t *testing.T) {
	s.checkStillServed(t, "hello", sameName)
	s.Hub.Kubectl(t, "delete", "namespace", s.team, "--timeout=180s")
	s.waitForRemainingWorks(t)
}

// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wrangler

import (
	"regexp"
	"strings"
	"testing"
)

// addWasm is (module (func (export "add") (param i32 i32) (result i32) local.get 0 local.get 1 i32.add)).
const addWasm = "\x00asm\x01\x00\x00\x00\x01\x07\x01\x60\x02\x7f\x7f\x01\x7f\x03\x02\x01\x00\x07\x07\x01\x03add\x00\x00\x0a\x09\x01\x07\x00\x20\x00\x20\x01\x6a\x0b"

// shop has a module of each kind that wrangler bundles, and settings.
func shop(version string) map[string]string {
	return map[string]string{
		"src/index.js": `
import wasm from "./add.wasm";
import motto from "./motto.txt";
import { name } from "./lib/name.js";
export default { async fetch(request, env) {
  const { add } = (await WebAssembly.instantiate(wasm)).exports;
  return new Response([name, "` + version + `", add(20, 22), motto.trim(), env.GREETING, env.LIMITS.most, env.API_KEY ?? "no key"].join(" "));
} };
`,
		"src/lib/name.js": "export const name = 'shop';\n",
		"src/motto.txt":   "everywhere\n",
		"src/add.wasm":    addWasm,
	}
}

const shopSettings = `
[vars]
GREETING = "hello"
LIMITS = { most = 7, least = 1 } # the hub stores them in another order
`

// shop is the developer's project.
func (s *tests) shop(t *testing.T, version string) *project {
	t.Helper()
	return s.project(t, "shop", shopSettings, shop(version))
}

// answers is what a version of it answers.
func answers(version, key string) string { return "shop " + version + " 42 everywhere hello 7 " + key }

// versionID is how wrangler prints which version is current.
var versionID = regexp.MustCompile(`Current Version ID: ([0-9a-f-]{36})`)

// currentOf returns the version that wrangler printed.
func currentOf(t *testing.T, out string) string {
	t.Helper()
	found := versionID.FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("wrangler names no version: %s", out)
	}
	return found[1]
}

func (s *tests) testDeploy(t *testing.T) {
	p := s.shop(t, "v1")
	out := p.run(t, "deploy")
	s.first = currentOf(t, out)
	if !strings.Contains(out, "worker-shop.workers-"+s.account+".svc") {
		t.Errorf("wrangler does not say where it is reached: %s", out)
	}
	p.waitForAnswer(t, answers("v1", "no key"))
	// What wrangler has deployed is what kubectl shows.
	if got := s.Hub.Kubectl(t, "get", "workerdeployments", "-n", s.team, "-o", "jsonpath={.items[*].spec.template.scriptName}"); got != "shop" {
		t.Errorf("WorkerDeployments are %q", got)
	}
}

func (s *tests) testDeployAgain(t *testing.T) {
	p := s.shop(t, "v2")
	currentOf(t, p.run(t, "deploy", "--message", "the second one", "--tag", "v2"))
	p.waitForAnswer(t, answers("v2", "no key"))
}

func (s *tests) testSecrets(t *testing.T) {
	p := s.shop(t, "v2")
	p.input(t, "a-secret-key", "secret", "put", "API_KEY")
	p.waitForAnswer(t, answers("v2", "a-secret-key"))
	if out := p.run(t, "secret", "list"); !strings.Contains(out, "API_KEY") || strings.Contains(out, "a-secret-key") {
		t.Errorf("secret list says %s", out)
	}
	p.write(t, map[string]string{"secrets.json": `{"API_KEY": "another-key", "UNUSED": "x"}`})
	p.run(t, "secret", "bulk", "secrets.json")
	p.waitForAnswer(t, answers("v2", "another-key"))
	p.run(t, "secret", "delete", "UNUSED")
	if out := p.run(t, "secret", "list"); strings.Contains(out, "UNUSED") || !strings.Contains(out, "API_KEY") {
		t.Errorf("secret list says %s", out)
	}
	// A deploy keeps them.
	p = s.shop(t, "v3")
	p.run(t, "deploy")
	p.waitForAnswer(t, answers("v3", "another-key"))
}

var uploaded = regexp.MustCompile(`Worker Version ID: ([0-9a-f-]{36})`)

func (s *tests) testVersions(t *testing.T) {
	p := s.shop(t, "v4")
	out := p.run(t, "versions", "upload", "--message", "not yet", "--tag", "four")
	found := uploaded.FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("versions upload says %s", out)
	}
	id := found[1]
	if out := p.run(t, "versions", "list"); !strings.Contains(out, id) || !strings.Contains(out, "not yet") || !strings.Contains(out, "four") {
		t.Errorf("versions list says %s", out)
	}
	p.checkStillAnswers(t, answers("v3", "another-key"))
	p.expectFailure(t, p.as, []string{"latest version"}, "secret", "put", "API_KEY")
	older := s.versionIDs(t, p)[1]
	p.expectFailure(t, p.as, []string{"not supported", "split"}, "versions", "deploy", id+"@30%", older+"@70%", "-y")
	p.checkStillAnswers(t, answers("v3", "another-key"))
	p.run(t, "versions", "deploy", id+"@100%", "-y")
	p.waitForAnswer(t, answers("v4", "another-key"))
	// A version with another secret is the same code, and not deployed.
	p.input(t, "a-third-key", "versions", "secret", "put", "API_KEY")
	p.checkStillAnswers(t, answers("v4", "another-key"))
	p.run(t, "versions", "deploy", s.versionIDs(t, p)[0]+"@100%", "-y")
	p.waitForAnswer(t, answers("v4", "a-third-key"))
}

// versionIDs are the versions that wrangler lists, the newest first.
func (s *tests) versionIDs(t *testing.T, p *project) []string {
	t.Helper()
	var ids []string
	for _, found := range regexp.MustCompile(`Version ID:\s+([0-9a-f-]{36})`).FindAllStringSubmatch(p.run(t, "versions", "list"), -1) {
		ids = append([]string{found[1]}, ids...)
	}
	if len(ids) < 2 {
		t.Fatalf("versions are %q", ids)
	}
	return ids
}

func (s *tests) testDeployments(t *testing.T) {
	p := s.shop(t, "v4")
	list := p.run(t, "deployments", "list")
	for _, word := range []string{"the second one", s.username()} {
		if !strings.Contains(list, word) {
			t.Errorf("deployments list does not say %q but %s", word, list)
		}
	}
	status := p.run(t, "deployments", "status")
	if !strings.Contains(status, s.versionIDs(t, p)[0]) || !strings.Contains(status, "100%") {
		t.Errorf("deployments status says %s", status)
	}
	// As many as there are releases that kubectl shows.
	releases := strings.Fields(s.Hub.Kubectl(t, "get", "workerreleases", "-n", s.team, "-o", "name"))
	if got := strings.Count(list, "(100%)"); got != len(releases) {
		t.Errorf("wrangler lists %d deployments, and there are the releases %q", got, releases)
	}
}

func (s *tests) testRollback(t *testing.T) {
	p := s.shop(t, "v4")
	before := s.listBuilds(t)
	out := p.run(t, "rollback", "-y", "--message", "back")
	p.waitForAnswer(t, answers("v4", "another-key"))
	if !strings.Contains(out, "* API_KEY") {
		t.Errorf("wrangler does not say that the secret changes: %s", out)
	}
	if after := s.listBuilds(t); after != before {
		t.Errorf("there were the builds %q, and are %q", before, after)
	}
	if out := p.run(t, "deployments", "status"); !strings.Contains(out, "back") {
		t.Errorf("deployments status says %s", out)
	}
	// To the very first one, which had no secret.
	p.run(t, "rollback", s.first, "-y")
	p.waitForAnswer(t, answers("v1", "no key"))
	if out := p.run(t, "secret", "list"); strings.Contains(out, "API_KEY") {
		t.Errorf("secret list says %s", out)
	}
	s.testManualDeployment(t, p)
}

// testManualDeployment: what kubectl asks for is what wrangler shows, and goes back to.
func (s *tests) testManualDeployment(t *testing.T, p *project) {
	t.Helper()
	s.Hub.Kubectl(t, "patch", "workerdeployment", "shop", "-n", s.team, "--type=json",
		"-p", `[{"op": "replace", "path": "/spec/template/bindings/0/text", "value": "good day"}]`)
	p.waitForAnswer(t, strings.Replace(answers("v1", "no key"), "hello", "good day", 1))
	if out := p.run(t, "deployments", "status"); !strings.Contains(out, "kubectl") {
		t.Errorf("deployments status says %s", out)
	}
	p.run(t, "rollback", s.first, "-y")
	p.waitForAnswer(t, answers("v1", "no key"))
}

func (s *tests) listBuilds(t *testing.T) string {
	t.Helper()
	return s.Hub.Kubectl(t, "get", "jobbuilders", "-n", s.team, "-o", "name")
}

// testServiceWorker: WebAssembly, text and data are bindings there.
func (s *tests) testServiceWorker(t *testing.T) {
	p := s.project(t, "old", `
[vars]
GREETING = "hello"
[wasm_modules]
ADD = "src/add.wasm"
[text_blobs]
MOTTO = "src/motto.txt"
`, map[string]string{
		"src/index.js": `addEventListener("fetch", event => event.respondWith(answer()));
async function answer() {
  console.log("asked");
  const { exports } = await WebAssembly.instantiate(ADD);
  return new Response([GREETING, exports.add(20, 22), MOTTO.trim()].join(" "));
}
`,
		"src/add.wasm": addWasm, "src/motto.txt": "everywhere\n",
	})
	p.run(t, "deploy")
	p.waitForAnswer(t, "hello 42 everywhere")
	p.write(t, map[string]string{"src/motto.txt": "somewhere\n"})
	p.run(t, "deploy")
	p.waitForAnswer(t, "hello 42 somewhere")
}

// testDeleteOne leaves the others.
func (s *tests) testDeleteOne(t *testing.T) {
	s.testDelete(t, s.project(t, "old", "", saying("''")))
	s.newEchoProject(t).checkStillAnswers(t, "kept")
}

// testDelete removes all that was made of a script.
func (s *tests) testDelete(t *testing.T, p *project, args ...string) {
	t.Helper()
	p.run(t, append([]string{"delete"}, args...)...)
	if left := s.Hub.Kubectl(t, "get", "workerdeployments", "-n", s.team, "-o", "name"); strings.Contains(left, p.name) {
		t.Errorf("there are %s", left)
	}
	if left := append(s.listStored(t, s.account+"/"+p.name+"/"), s.listStored(t, "_versions/"+s.account+"/"+p.name+"/")...); len(left) > 0 {
		t.Errorf("the store has %q", left)
	}
	p.expectFailure(t, p.as, []string{"does not exist"}, "deployments", "list")
}

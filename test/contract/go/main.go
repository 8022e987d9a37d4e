// The main replay of the contract by a client in Go: strictly typed, standard library only. It is run by
// go-client.test.ts, with the service's address, a token and a public key in its environment.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const patience = 60 * time.Second

var client = &http.Client{Timeout: 30 * time.Second}

func main() {
	defer func() {
		if problem := recover(); problem != nil {
			fmt.Fprintln(os.Stderr, problem)
			os.Exit(1)
		}
	}()
	replay()
	fmt.Println("ok")
}

func require(holds bool, format string, values ...any) {
	if !holds {
		panic(fmt.Sprintf(format, values...))
	}
}

// call sends one request and decodes its answer; `into` nil: the answer has no body.
func call(method, path string, body any, status int, into any) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		require(err == nil, "%v", err)
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequest(method, os.Getenv("BERTH_URL")+path, content)
	require(err == nil, "%v", err)
	request.Header.Set("Authorization", "Bearer "+os.Getenv("BERTH_TOKEN"))
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	require(err == nil, "%s %s: %v", method, path, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	require(err == nil, "%s %s: %v", method, path, err)
	require(response.StatusCode == status, "%s %s: %d %s", method, path, response.StatusCode, data)
	require(response.Header.Get("X-Request-Id") != "", "%s %s: no X-Request-Id", method, path)
	if into == nil {
		require(len(data) == 0, "%s %s: a body: %s", method, path, data)
		return
	}
	kind := response.Header.Get("Content-Type")
	require(kind == "application/json; charset=utf-8", "%s %s: %s", method, path, kind)
	err = decode(data, into)
	require(err == nil, "%s %s: %v in %s", method, path, err, data)
}

func list() map[string]instance {
	var all map[string]instance
	call("GET", "/v1/instances/list?update_ips=true", struct{}{}, 200, &all)
	for id, one := range all {
		require(one.ID == id, "%s under %s", one.ID, id)
		for _, digits := range []string{one.CPUCores, one.NumGPUs, one.Memory} {
			_, err := strconv.Atoi(digits)
			require(err == nil, "%v", err)
		}
	}
	return all
}

func waitUntilRunning(id string) instance {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		one, there := list()[id]
		require(there, "instance %s is not in the map", id)
		if one.Status == "RUNNING" {
			require(one.IP != nil && one.Port != nil, "no address when RUNNING")
			return one
		}
		require(one.Status != "STOPPED" && one.Status != "UNKNOWN", "%s on the way up", one.Status)
	}
	panic("instance " + id + " is not RUNNING in time")
}

func waitUntilReady(name string) snapshot {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var all []snapshot
		call("GET", "/v1/snapshots/list", struct{}{}, 200, &all)
		require(len(all) == 1 && all[0].Name == name, "%v", all)
		require(all[0].Status != "FAILED", "the snapshot FAILED")
		if all[0].Status == "READY" {
			return all[0]
		}
	}
	panic("snapshot " + name + " is not READY in time")
}

type wanted struct {
	CPUCores   int    `json:"cpu_cores"`
	DiskSizeGB int    `json:"disk_size_gb"`
	GPUType    string `json:"gpu_type"`
	Mode       string `json:"mode"`
	NumGPUs    int    `json:"num_gpus"`
	Template   string `json:"template"`
	PublicKey  string `json:"public_key,omitempty"`
}

func create(template string, diskSizeGB int) instance {
	var made created
	body := wanted{1, diskSizeGB, "CPU", "prototyping", 1, template, os.Getenv("BERTH_PUBLIC_KEY")}
	call("POST", "/v1/instances/create", body, 201, &made)
	require(made.Key == "", "a private key although a public one was given")
	one := waitUntilRunning(strconv.Itoa(made.Identifier))
	require(one.UUID == made.UUID && one.GPUType == "CPU", "%v", one)
	return one
}

func addKeys(one instance) {
	var added addedKey
	call("POST", "/v1/instances/"+one.ID+"/add_key", nil, 200, &added)
	require(added.Success && added.UUID == one.UUID, "%v", added)
	require(strings.HasPrefix(added.Key, "-----BEGIN OPENSSH PRIVATE KEY-----\n"), "no key")
	require(strings.HasSuffix(added.Key, "-----END OPENSSH PRIVATE KEY-----\n"), "it ends in a newline")
	given := map[string]string{"public_key": os.Getenv("BERTH_PUBLIC_KEY")}
	call("POST", "/v1/instances/"+one.UUID+"/add_key", given, 200, &added)
	require(added.Key == "", "a private key although a public one was given")
	keys := list()[one.ID].SSHPublicKeys
	require(len(keys) == 2 && keys[0] == os.Getenv("BERTH_PUBLIC_KEY"), "%v", keys)
}

func changePorts(one instance) {
	port, err := strconv.Atoi(os.Getenv("BERTH_HTTP_PORT"))
	require(err == nil, "%v", err)
	var answer modified
	call("POST", "/v1/instances/"+one.ID+"/modify", map[string]any{"add_ports": []int{port}}, 200, &answer)
	require(answer.Identifier == one.ID && answer.InstanceName == one.Name, "%v", answer)
	require(len(answer.HTTPPorts) == 1 && answer.HTTPPorts[0] == port, "%v", answer)
	waitUntilRunning(one.ID)
	call("PATCH", "/v1/instances/"+one.ID+"/ports", map[string]any{"remove_ports": []int{port}}, 200, &answer)
	require(len(answer.HTTPPorts) == 0, "%v", answer)
	waitUntilRunning(one.ID)
}

func replay() {
	var me validated
	call("GET", "/v1/auth/validate", nil, 200, &me)
	require(me.Valid && me.Email != "" && me.OrgName != "", "%v", me)
	require(len(list()) == 0, "instances before the first")
	one := create("base", 10)
	addKeys(one)
	changePorts(one)

	var said message
	call("POST", "/v1/snapshots/create", map[string]string{"instanceId": one.UUID, "name": "go-1"}, 202, &said)
	ready := waitUntilReady("go-1")
	copied := create("go-1", 20)
	call("DELETE", "/v1/snapshots/"+ready.ID, nil, 204, nil)
	for _, id := range []string{one.ID, copied.ID} {
		call("POST", "/v1/instances/"+id+"/delete", struct{}{}, 200, &said)
	}
	for end := time.Now().Add(patience); len(list()) > 0; time.Sleep(50 * time.Millisecond) {
		require(time.Now().Before(end), "instances are still there")
	}
	var no failure
	call("POST", "/v1/instances/"+one.ID+"/add_key", nil, 404, &no)
	require(no.Code == 404 && no.Error == "not_found", "%v", no)
}

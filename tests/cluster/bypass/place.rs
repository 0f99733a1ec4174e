//! The cluster of these tests: a node, a namespace with its owner, and Transom under Enforce.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use kube::api::{DeleteParams, GetParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use transom::model::objects::workload::Kind;

use crate::support::command::printed;
use crate::support::control_plane::{ControlPlane, programs_of_a_whole_control_plane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet;
use crate::support::objects::url_of;

/// The namespace, and the user who has the ClusterRole `admin` in it.
pub const TEAM: &str = "team";
pub const MALLORY: &str = "mallory";
/// A Windows node.
pub const NODE: &str = "win-2022-a";
/// The label with which a namespace leaves the selector of the policy.
pub const OUTSIDE: &str = "outside";
/// What an admission is given at most. Each entry fails closed here: else a busy machine would let something in.
const TIMEOUT: &str = "30";

pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

pub struct Place {
    pub cluster: ControlPlane,
    pub replica: Replica,
    pub node_uid: String,
    /// Speaks as the owner of the namespace.
    client: kube::Client,
}

/// What the API server says.
#[derive(Clone, Debug)]
pub struct Answer {
    pub ok: bool,
    pub code: u16,
    /// Why it was refused, or what is stored.
    pub message: String,
}

/// Whether Transom refuses it, in one of both phases.
pub fn denied(answer: &Answer) -> bool {
    answer.code == 403
        && answer.message.contains(".transom.dev\" denied the request")
        && !answer.message.contains("failed calling webhook")
}

/// The cluster that the tests share.
pub fn place() -> Option<&'static Place> {
    static PLACE: OnceLock<Result<Place, ()>> = OnceLock::new();
    let programs = programs_of_a_whole_control_plane("tests/cluster/bypass.rs")?;
    let prepared = || prepare(ControlPlane::start(programs).unwrap());
    // Else every test would try it once more.
    let place = PLACE.get_or_init(|| catch_unwind(AssertUnwindSafe(prepared)).map_err(drop));
    let place = place.as_ref();
    Some(place.unwrap_or_else(|()| panic!("the cluster could not be made; another test says why")))
}

fn prepare(cluster: ControlPlane) -> Place {
    const POLICY: &str = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: default}
spec:
  mode: Enforce
  namespaceSelector: {matchExpressions: [{key: outside, operator: DoesNotExist}]}
  exemptions:
  - {name: image, owner: a, reason: b, expiresOn: 2999-12-31, rules: [privileged, host-pid], images: ['registry.example.com/exempt/*']}
  - {name: user, owner: a, reason: b, expiresOn: 2999-12-31, rules: [host-ipc], usernames: [deployer], groups: [deployers]}
";
    let controllers = "clusterrole-aggregation-controller,deployment-controller,replicaset-controller,\
                       statefulset-controller,daemonset-controller,job-controller,replicationcontroller-controller";
    cluster.start_controllers_of(controllers).unwrap();
    // kubectl validates what it creates by what the API server publishes a moment after it is ready.
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}).to_string();
    let is_created = || cluster.kubectl_with(&["create", "-f", "-"], &namespace).ok;
    assert!(wait(Duration::from_secs(60), is_created));
    kubelet::join(&cluster, NODE, "10.0.20348");
    let uid = cluster.kubectl(&["get", "node", NODE, "-o", "jsonpath={.metadata.uid}"]);
    let node_uid = uid.succeeded().out;
    let owner = [
        "create",
        "rolebinding",
        "owner",
        "--clusterrole=admin",
        "--user",
        MALLORY,
        "-n",
        TEAM,
    ];
    cluster.kubectl(&owner).succeeded();
    // The ClusterRole `admin` has no rights on PodTemplates; here their author is the same user.
    let templates = [
        "create",
        "role",
        "templates",
        "--verb=create,get,update,delete",
        "--resource=podtemplates",
        "-n",
        TEAM,
    ];
    cluster.kubectl(&templates).succeeded();
    let author = [
        "create",
        "rolebinding",
        "templates",
        "--role=templates",
        "--user",
        MALLORY,
        "-n",
        TEAM,
    ];
    cluster.kubectl(&author).succeeded();

    install::prepare(&cluster, POLICY);
    let replica = Replica::start(&cluster, "transom", &[]);
    let url = format!("https://127.0.0.1:{}", replica.port);
    let webhooks = printed(&["generate", "webhooks", "--url", &url])
        .replace("failurePolicy: Ignore", "failurePolicy: Fail")
        .replace("timeoutSeconds: 2", &format!("timeoutSeconds: {TIMEOUT}"));
    cluster
        .kubectl_with(&["apply", "--server-side", "-f", "-"], &webhooks)
        .succeeded();
    replica.is_ready(&cluster);
    let client = RUNTIME.block_on(cluster.client_with(|config| {
        config.auth_info.impersonate = Some(MALLORY.to_owned());
        config.read_timeout = Some(Duration::from_secs(120));
    }));
    let place = Place {
        cluster,
        replica,
        node_uid,
        client,
    };
    // The rights of `admin` are put together by a controller, and the first calls may meet no certificate yet.
    let bad = crate::support::objects::object(Kind::Pod, "probe", &windows(&json!({"hostPID": true})));
    let is_denied = || denied(&RUNTIME.block_on(place.create(Kind::Pod, &bad)));
    assert!(
        wait(Duration::from_secs(90), is_denied),
        "{:?}\n{}",
        RUNTIME.block_on(place.create(Kind::Pod, &bad)),
        place.cluster.end_of_log("transom")
    );
    place
}

impl Place {
    /// Creates an object in the namespace of its owner.
    pub async fn create(&self, kind: Kind, object: &Value) -> Answer {
        let body = serde_json::to_vec(object).unwrap();
        let request = || {
            Request::new(url_of(kind, TEAM))
                .create(&PostParams::default(), body.clone())
                .unwrap()
        };
        self.send(request).await
    }

    /// Puts another version in the place of an object, whichever version it has: controllers write its status meanwhile.
    pub async fn update(&self, kind: Kind, object: &Value) -> Answer {
        let name = object["metadata"]["name"].as_str().unwrap();
        let mut object = object.clone();
        object["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("resourceVersion");
        let body = serde_json::to_vec(&object).unwrap();
        let request = || {
            Request::new(url_of(kind, TEAM))
                .replace(name, &PostParams::default(), body.clone())
                .unwrap()
        };
        self.send(request).await
    }

    pub async fn get(&self, kind: Kind, name: &str) -> Value {
        let request = Request::new(url_of(kind, TEAM)).get(name, &GetParams::default());
        self.client.request(request.unwrap()).await.unwrap()
    }

    pub async fn delete(&self, kind: Kind, name: &str) {
        let params = DeleteParams::default().grace_period(0);
        let request = Request::new(url_of(kind, TEAM)).delete(name, &params).unwrap();
        let _ = self.client.request_text(request).await;
    }

    /// Sends a body of any type.
    pub async fn send_as(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> Answer {
        let request = || {
            axum::http::Request::builder()
                .method(method)
                .uri(path)
                .header("content-type", content_type)
                .header("accept", "application/json")
                .body(body.to_vec())
                .unwrap()
        };
        self.send(request).await
    }

    /// Sends a request, and again where the webhook was not reached: that is no answer of Transom.
    async fn send(&self, request: impl Fn() -> axum::http::Request<Vec<u8>>) -> Answer {
        for _ in 0..20 {
            let answer = match self.client.request_text(request()).await {
                Ok(stored) => Answer {
                    ok: true,
                    code: 200,
                    message: stored,
                },
                Err(kube::Error::Api(status)) => Answer {
                    ok: false,
                    code: status.code,
                    message: status.message.clone(),
                },
                Err(other) => Answer {
                    ok: false,
                    code: 599,
                    message: other.to_string(),
                },
            };
            let unreached =
                answer.code >= 500 || answer.code == 429 || answer.message.contains("failed calling webhook");
            if !unreached {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("the API server does not answer, or the webhook is not reached");
    }
}

/// The least pod spec for Windows in which nobody finds fault, with this laid over it.
pub fn windows(over: &Value) -> Value {
    let mut spec = json!({
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [{"name": "web", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}],
    });
    json_patch::merge(&mut spec, over);
    spec
}

/// A spec with this laid over it.
pub fn merged(spec: &Value, over: &Value) -> Value {
    let mut merged = spec.clone();
    json_patch::merge(&mut merged, over);
    merged
}

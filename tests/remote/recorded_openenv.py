"""Conversations of genuine ends of OpenEnv 0.10.0, as a proxy has recorded them.

Each is a list of what the client has sent and what the server has answered, "" where it
has closed the connection. Their environments are those of `openenv_games.py`.
"""

from __future__ import annotations

# The schema of their server's `Walk`.
WALK_SCHEMA = (
    '{"action": {"additionalProperties": false, "description": "Where to go."'
    ', "properties": {"metadata": {"additionalProperties": true, "description'
    '": "Additional metadata for the action", "title": "Metadata", "type": "o'
    'bject"}, "push": {"maximum": 1, "minimum": -1, "title": "Push", "type": '
    '"integer"}, "note": {"default": "", "title": "Note", "type": "string"}},'
    ' "required": ["push"], "title": "WalkAction", "type": "object"}, "observ'
    'ation": {"additionalProperties": false, "description": "Where the walk i'
    's.", "properties": {"done": {"default": false, "description": "Whether t'
    'he episode has terminated", "title": "Done", "type": "boolean"}, "reward'
    '": {"anyOf": [{"type": "boolean"}, {"type": "integer"}, {"type": "number'
    '"}, {"type": "null"}], "default": null, "description": "Reward signal fr'
    'om the last action", "title": "Reward"}, "metadata": {"additionalPropert'
    'ies": true, "description": "Additional metadata for the observation", "t'
    'itle": "Metadata", "type": "object"}, "place": {"items": {"type": "numbe'
    'r"}, "title": "Place", "type": "array"}, "left": {"maximum": 9, "minimum'
    '": 0, "title": "Left", "type": "integer"}, "word": {"title": "Word", "ty'
    'pe": "string"}}, "required": ["place", "left", "word"], "title": "WalkOb'
    'servation", "type": "object"}, "state": {"additionalProperties": true, "'
    'description": "Base class for environment state.\\n\\nRepresents interna'
    'l environment state, separate from observations.", "properties": {"episo'
    'de_id": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": nul'
    'l, "description": "Unique identifier for the current episode", "title": '
    '"Episode Id"}, "step_count": {"default": 0, "description": "Number of st'
    'eps taken in the current episode", "minimum": 0, "title": "Step Count", '
    '"type": "integer"}}, "title": "State", "type": "object"}}'
)
# Their client plays their server's `Walk`.
THEIR_CLIENT_AND_SERVER = [
    (
        '{"type": "reset", "data": {"seed": 7, "episode_id": "mine"}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[0.89'
        '72138009695755,0.7756856902451935],"left":5,"word":"odd"},"reward":null,'
        '"done":false}}',
    ),
    (
        '{"type": "state"}',
        '{"type":"state","data":{"episode_id":"mine","step_count":0}}',
    ),
    (
        '{"type": "step", "data": {"push": 1}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[1.00'
        '66219622123012,1.3210149050734712],"left":4,"word":""},"reward":2.327636'
        '867285772,"done":false}}',
    ),
    (
        '{"type": "step", "data": {"push": -1}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[-0.9'
        '850245927841612,0.3811585076709097],"left":3,"word":"odd"},"reward":-0.6'
        '038660851132516,"done":false}}',
    ),
    (
        '{"type": "step", "data": {"push": -1}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[-0.6'
        '448093472296277,-1.11104801088042],"left":2,"word":""},"reward":-1.75585'
        '73581100476,"done":false}}',
    ),
    (
        '{"type": "step", "data": {"push": -1}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[-2.2'
        '65284247049568,-1.6212059606952218],"left":1,"word":"odd"},"reward":-3.8'
        '8649020774479,"done":false}}',
    ),
    (
        '{"type": "step", "data": {"push": -1}}',
        '{"type":"observation","data":{"observation":{"metadata":{"truncated":tru'
        'e,"note":"cut"},"place":[-2.9083972388895076,-2.5157917116973234],"left"'
        ':0,"word":""},"reward":-5.4241889505868315,"done":true,"metadata":{"trun'
        'cated":true,"note":"cut"}}}',
    ),
    (
        '{"type": "step", "data": {"push": 9}}',
        '{"type":"error","data":{"message":"Invalid message","code":"VALIDATION_E'
        'RROR","errors":[{"type":"less_than_equal","loc":["push"],"msg":"Input sh'
        'ould be less than or equal to 1","input":9,"ctx":{"le":1},"url":"https:/'
        '/errors.pydantic.dev/2.14/v/less_than_equal"}]}}',
    ),
    (
        '{"type": "step", "data": {}}',
        '{"type":"error","data":{"message":"Invalid message","code":"VALIDATION_E'
        'RROR","errors":[{"type":"missing","loc":["push"],"msg":"Field required",'
        '"input":{},"url":"https://errors.pydantic.dev/2.14/v/missing"}]}}',
    ),
    (
        '{"type": "reset", "data": {}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[0.50'
        '45482589579533,0.5534973520744925],"left":4,"word":""},"reward":null,"do'
        'ne":false}}',
    ),
    (
        '{"type": "state"}',
        '{"type":"state","data":{"episode_id":null,"step_count":0}}',
    ),
    (
        '{"type": "close"}',
        "",
    ),
]
# Our client plays the same.
OUR_CLIENT = [
    (
        '{"type":"reset","data":{}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[0.26'
        '97867137638703,0.04097352393619469],"left":5,"word":"odd"},"reward":null'
        ',"done":false}}',
    ),
    (
        '{"type":"reset","data":{"seed":4}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[0.51'
        '13275528143616,0.9762437057077041],"left":4,"word":""},"reward":null,"do'
        'ne":false}}',
    ),
    (
        '{"type":"step","data":{"push":1}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[2.17'
        '04753026466164,0.33484641112305735],"left":3,"word":"odd"},"reward":2.50'
        '5321713769674,"done":false}}',
    ),
    (
        '{"type":"step","data":{"push":1}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[3.16'
        '5272038474684,0.7113826701346639],"left":2,"word":""},"reward":3.8766547'
        '086093484,"done":false}}',
    ),
    (
        '{"type":"step","data":{"push":1}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[4.31'
        '3903561726711,0.10319488594827497],"left":1,"word":"odd"},"reward":4.417'
        '098447674986,"done":false}}',
    ),
    (
        '{"type":"step","data":{"push":1}}',
        '{"type":"observation","data":{"observation":{"metadata":{"truncated":tru'
        'e,"note":"cut"},"place":[5.555675438603562,1.3385758046857297],"left":0,'
        '"word":""},"reward":6.8942512432892915,"done":true,"metadata":{"truncate'
        'd":true,"note":"cut"}}}',
    ),
    (
        '{"type":"reset","data":{}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[0.43'
        '04962777294131,0.7889467175443294],"left":5,"word":"odd"},"reward":null,'
        '"done":false}}',
    ),
    (
        '{"type":"step","data":{"push":1}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[-0.0'
        '6262040723481954,4.041675842268357],"left":4,"word":""},"reward":3.97905'
        '54350335374,"done":false}}',
    ),
    (
        '{"type":"step","data":{"push":1}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[-0.9'
        '7826596519312,6.143477698090841],"left":3,"word":"odd"},"reward":5.16521'
        '17328977205,"done":false}}',
    ),
    (
        '{"type":"step","data":{"push":1}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[-0.3'
        '081700390669697,6.262831180163044],"left":2,"word":""},"reward":5.954661'
        '141096074,"done":false}}',
    ),
    (
        '{"type":"state"}',
        '{"type":"state","data":{"episode_id":null,"step_count":3}}',
    ),
    (
        '{"type":"close"}',
        "",
    ),
]
# Our client plays their server's `Echo`, which raises once.
OUR_CLIENT_ECHO = [
    (
        '{"type":"reset","data":{}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"echoed":"hel'
        'lo","words":[]},"reward":null,"done":false}}',
    ),
    (
        '{"type":"step","data":{"message":"hal"}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"echoed":"hal'
        '","words":["hal"]},"reward":1,"done":false}}',
    ),
    (
        '{"type":"step","data":{"message":"raise"}}',
        '{"type":"error","data":{"message":"was told to raise","code":"EXECUTION_'
        'ERROR"}}',
    ),
    (
        '{"type":"reset","data":{}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"echoed":"hel'
        'lo","words":[]},"reward":null,"done":false}}',
    ),
    (
        '{"type":"close"}',
        "",
    ),
]
# Our client meets their server when that is full.
OUR_CLIENT_FULL = [
    (
        '{"type":"reset","data":{}}',
        '{"type":"error","data":{"message":"Server at capacity: 1/1 sessions acti'
        've. Cannot accept new connections.","code":"CAPACITY_REACHED","active_se'
        'ssions":1,"max_sessions":1}}',
    ),
]
# Their client plays CartPole of our server; steps in the middle are left out.
THEIR_CLIENT = [
    (
        '{"type": "reset", "data": {"seed": 7, "episode_id": "mine"}}',
        '{"type":"observation","data":{"observation":{"value":[0.0474077314138412'
        '5,0.04191369190812111,0.03767482563853264,0.03611012175679207]},"reward"'
        ':null,"done":false,"metadata":{"discount":1.0,"terminated":false,"trunca'
        'ted":false,"episode_steps":0,"state":[0.04740773013590402,0.041913692937'
        "20408,0.037674826473245715,0.03611012082699308]}}}",
    ),
    (
        '{"type": "step", "data": {"value": 1}}',
        '{"type":"observation","data":{"observation":{"value":[0.0482460036873817'
        '44,0.23647569119930267,0.03839702904224396,-0.24445199966430664]},"rewar'
        'd":1.0,"done":false,"metadata":{"discount":1.0,"terminated":false,"trunc'
        'ated":false,"episode_steps":1,"state":[0.0482460039946481,0.236475693799'
        "02272,0.03839702888978558,-0.24445200619635007]}}}",
    ),
    (
        '{"type": "state"}',
        '{"type":"state","data":{"episode_id":"mine","step_count":1}}',
    ),
    (
        '{"type": "step", "data": {"value": 9}}',
        '{"type":"error","data":{"message":"The action does not fit its spec.\\n'
        "\\n  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maxim"
        "um=1)\\n  got        array of shape (), dtype int64, values 9 \\u2026 9"
        '\\n\\nThe value 9 is above the maximum 1.","code":"VALIDATION_ERROR","er'
        'rors":[{"type":"value_error","loc":["action"],"msg":"The action does not'
        " fit its spec.\\n\\n  expected   BoundedArraySpec(shape=(), dtype=int64,"
        " minimum=0, maximum=1)\\n  got        array of shape (), dtype int64, va"
        'lues 9 \\u2026 9\\n\\nThe value 9 is above the maximum 1."}]}}',
    ),
    (
        '{"type": "step", "data": {}}',
        '{"type":"error","data":{"message":"The action must be an object with the'
        ' key \'value\' alone, got an empty one.","code":"VALIDATION_ERROR","erro'
        'rs":[{"type":"value_error","loc":["action"],"msg":"The action must be an'
        " object with the key 'value' alone, got an empty one.\"}]}}",
    ),
    (
        '{"type": "step", "data": {"value": 1}}',
        '{"type":"observation","data":{"observation":{"value":[0.0529755167663097'
        '4,0.4310287833213806,0.03350798785686493,-0.5247805714607239]},"reward":'
        '1.0,"done":false,"metadata":{"discount":1.0,"terminated":false,"truncate'
        'd":false,"episode_steps":2,"state":[0.052975517870628555,0.4310287768171'
        "4313,0.03350798876585857,-0.5247805774911515]}}}",
    ),
    (
        '{"type": "step", "data": {"value": 1}}',
        '{"type":"observation","data":{"observation":{"value":[0.1952166706323623'
        '7,1.7982029914855957,-0.1619417816400528,-2.626847267150879]},"reward":1'
        '.0,"done":false,"metadata":{"discount":1.0,"terminated":false,"truncated'
        '":false,"episode_steps":9,"state":[0.19521666610379237,1.798203020546154'
        "8,-0.16194177902504467,-2.6268471888969116]}}}",
    ),
    (
        '{"type": "step", "data": {"value": 1}}',
        '{"type":"observation","data":{"observation":{"value":[0.2311807274818420'
        '4,1.994148850440979,-0.21447871625423431,-2.9643235206604004]},"reward":'
        '1.0,"done":true,"metadata":{"discount":0.0,"terminated":true,"truncated"'
        ':false,"episode_steps":10,"state":[0.23118072651471547,1.994148896436390'
        "3,-0.2144787228029829,-2.9643234424830456]}}}",
    ),
    (
        '{"type": "step", "data": {"value": 1}}',
        '{"type":"error","data":{"message":"The episode has ended: reset comes be'
        'fore step.","code":"EXECUTION_ERROR"}}',
    ),
    (
        '{"type": "reset", "data": {"seed": 7}}',
        '{"type":"observation","data":{"observation":{"value":[0.0474077314138412'
        '5,0.04191369190812111,0.03767482563853264,0.03611012175679207]},"reward"'
        ':null,"done":false,"metadata":{"discount":1.0,"terminated":false,"trunca'
        'ted":false,"episode_steps":0,"state":[0.04740773013590402,0.041913692937'
        "20408,0.037674826473245715,0.03611012082699308]}}}",
    ),
    (
        '{"type": "close"}',
        "",
    ),
]
# What a stranger sends to their server's `Walk` after a reset, on a connection each.
STRANGE = [
    (
        "{",
        '{"type":"error","data":{"message":"Invalid JSON: Expecting property name'
        ' enclosed in double quotes: line 1 column 2 (char 1)","code":"INVALID_JS'
        'ON"}}',
    ),
    (
        "[1]",
        '{"type":"error","data":{"message":"\'list\' object has no attribute \'ge'
        't\'","code":"SESSION_ERROR"}}',
    ),
    (
        '"x"',
        '{"type":"error","data":{"message":"\'str\' object has no attribute \'get'
        '\'","code":"SESSION_ERROR"}}',
    ),
    (
        "7",
        '{"type":"error","data":{"message":"\'int\' object has no attribute \'get'
        '\'","code":"SESSION_ERROR"}}',
    ),
    (
        "null",
        '{"type":"error","data":{"message":"\'NoneType\' object has no attribute '
        '\'get\'","code":"SESSION_ERROR"}}',
    ),
    (
        "{}",
        '{"type":"error","data":{"message":"Unknown message type: ","code":"UNKNO'
        'WN_TYPE"}}',
    ),
    (
        '{"type":"jump"}',
        '{"type":"error","data":{"message":"Unknown message type: jump","code":"U'
        'NKNOWN_TYPE"}}',
    ),
    (
        '{"type":"step"}',
        '{"type":"error","data":{"message":"Invalid message","code":"VALIDATION_E'
        'RROR","errors":[{"type":"missing","loc":["data"],"msg":"Field required",'
        '"input":{"type":"step"},"url":"https://errors.pydantic.dev/2.14/v/missin'
        'g"}]}}',
    ),
    (
        '{"type":"step","data":[1]}',
        '{"type":"error","data":{"message":"Invalid message","code":"VALIDATION_E'
        'RROR","errors":[{"type":"dict_type","loc":["data"],"msg":"Input should b'
        'e a valid dictionary","input":[1],"url":"https://errors.pydantic.dev/2.1'
        '4/v/dict_type"}]}}',
    ),
    (
        '{"type":"reset"}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[0.01'
        '6527635528529094,0.8132702392002724],"left":4,"word":""},"reward":null,"'
        'done":false}}',
    ),
    (
        '{"type":"state","data":{}}',
        '{"type":"error","data":{"message":"Invalid message","code":"VALIDATION_E'
        'RROR","errors":[{"type":"extra_forbidden","loc":["data"],"msg":"Extra in'
        'puts are not permitted","input":{},"url":"https://errors.pydantic.dev/2.'
        '14/v/extra_forbidden"}]}}',
    ),
    (
        '{"type":"state","more":1}',
        '{"type":"error","data":{"message":"Invalid message","code":"VALIDATION_E'
        'RROR","errors":[{"type":"extra_forbidden","loc":["more"],"msg":"Extra in'
        'puts are not permitted","input":1,"url":"https://errors.pydantic.dev/2.1'
        '4/v/extra_forbidden"}]}}',
    ),
    (
        '{"type":"reset","data":{"seed":-1}}',
        '{"type":"error","data":{"message":"expected non-negative integer","code"'
        ':"EXECUTION_ERROR"}}',
    ),
    (
        '{"type":"reset","data":{"seed":"x"}}',
        '{"type":"error","data":{"message":"SeedSequence expects int or sequence '
        'of ints for entropy not x","code":"EXECUTION_ERROR"}}',
    ),
    (
        '{"type":"mcp","data":{"jsonrpc":"2.0","method":"tools/list","id":5}}',
        '{"type":"mcp","data":{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"mes'
        'sage":"Environment does not support MCP","data":null}}}',
    ),
    (
        '{"type":"mcp","data":{"jsonrpc":"2.0","method":"tools/call","params":{"n'
        'ame":"go","arguments":{}},"id":"six"}}',
        '{"type":"mcp","data":{"jsonrpc":"2.0","id":"six","error":{"code":-32603,'
        '"message":"Environment does not support MCP","data":null}}}',
    ),
    (
        '{"type":"mcp","data":{"jsonrpc":"1.0","method":"tools/list"}}',
        '{"type":"mcp","data":{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"'
        'message":"Invalid request: 1 validation error for JsonRpcRequest\\njsonr'
        "pc\\n  Input should be '2.0' [type=literal_error, input_value='1.0', inp"
        "ut_type=str]\\n    For further information visit https://errors.pydantic"
        '.dev/2.14/v/literal_error","data":null}}}',
    ),
    (
        '{"type":"mcp","data":{}}',
        '{"type":"mcp","data":{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"'
        'message":"Invalid request: 2 validation errors for JsonRpcRequest\\njson'
        "rpc\\n  Field required [type=missing, input_value={}, input_type=dict]\\"
        "n    For further information visit https://errors.pydantic.dev/2.14/v/mi"
        "ssing\\nmethod\\n  Field required [type=missing, input_value={}, input_t"
        "ype=dict]\\n    For further information visit https://errors.pydantic.de"
        'v/2.14/v/missing","data":null}}}',
    ),
    (
        '{"type":"mcp"}',
        '{"type":"error","data":{"message":"Invalid message","code":"VALIDATION_E'
        'RROR","errors":[{"type":"missing","loc":["data"],"msg":"Field required",'
        '"input":{"type":"mcp"},"url":"https://errors.pydantic.dev/2.14/v/missing'
        '"}]}}',
    ),
    (
        '{"type":"state"}',
        '{"type":"state","data":{"episode_id":null,"step_count":0}}',
    ),
    (
        '{"type":"reset","data":{"seed":3}}',
        '{"type":"observation","data":{"observation":{"metadata":{},"place":[0.23'
        '68105065960997,0.8012744652063969],"left":5,"word":"odd"},"reward":null,'
        '"done":false}}',
    ),
    (
        '{"type":"close"}',
        "",
    ),
]
# Requests to their server by HTTP: the message, the body, and the status and content of
# the answer. The first is that of their validator.
REQUESTS = [
    (
        "mcp",
        "{}",
        200,
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid req'
        "uest: 2 validation errors for JsonRpcRequest\\njsonrpc\\n  Field require"
        "d [type=missing, input_value={}, input_type=dict]\\n    For further info"
        "rmation visit https://errors.pydantic.dev/2.14/v/missing\\nmethod\\n  Fi"
        "eld required [type=missing, input_value={}, input_type=dict]\\n    For f"
        'urther information visit https://errors.pydantic.dev/2.14/v/missing","da'
        'ta":null}}',
    ),
    (
        "reset",
        '{"seed": 3}',
        200,
        '{"observation":{"metadata":{},"place":[0.2368105065960997,0.801274465206'
        '3969],"left":5,"word":"odd"},"reward":null,"done":false,"metadata":null}',
    ),
    (
        "step",
        '{"action": {"push": 9}}',
        422,
        '{"detail":[{"type":"less_than_equal","loc":["push"],"msg":"Input should '
        'be less than or equal to 1","input":9,"ctx":{"le":1},"url":"https://erro'
        'rs.pydantic.dev/2.14/v/less_than_equal"}]}',
    ),
    (
        "step",
        "{}",
        422,
        '{"detail":[{"type":"missing","loc":["body","action"],"msg":"Field requir'
        'ed","input":{}}]}',
    ),
    (
        "reset",
        '{"seed": -1}',
        422,
        '{"detail":[{"type":"greater_than_equal","loc":["body","seed"],"msg":"Inp'
        'ut should be greater than or equal to 0","input":-1,"ctx":{"ge":0}}]}',
    ),
    (
        "mcp",
        '{"jsonrpc": "2.0", "method": "tools/list", "id": 1}',
        200,
        '{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Environment do'
        'es not support MCP","data":null}}',
    ),
    (
        "splits",
        "",
        501,
        '{"detail":"list_splits is not supported for this environment"}',
    ),
    (
        "tasks",
        '{"split": "train"}',
        501,
        '{"detail":"list_tasks is not supported for this environment"}',
    ),
]

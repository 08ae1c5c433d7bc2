# The rooms of the sources. A room is a folder with a target of its own, which sees the headers of
# the rooms that it links and no others: a wrong #include does not compile. docs/design.md draws the
# arrows between rooms; scripts/check_rooms compares the two.
set(CONVGRAD_ROOM_HEADERS ${PROJECT_BINARY_DIR}/rooms)
file(REMOVE_RECURSE ${CONVGRAD_ROOM_HEADERS})
file(WRITE ${CONVGRAD_ROOM_HEADERS}/arrows.txt "")

# Makes two include directories of a target: its folder, as it is written in
# #include "FOLDER/...", for itself and those that link it by name, and its headers of
# include/convgrad for whoever links those too.
function(convgrad_room_headers target folder links public)
  set(headers ${CONVGRAD_ROOM_HEADERS}/${target}/public)
  file(MAKE_DIRECTORY ${headers}/convgrad ${CONVGRAD_ROOM_HEADERS}/${target}/folder)
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${CONVGRAD_ROOM_HEADERS}/${target}/folder/${folder}
    SYMBOLIC)
  foreach(header IN LISTS public)
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include/convgrad/${header}.hpp
      ${headers}/convgrad/${header}.hpp SYMBOLIC)
  endforeach()
  target_include_directories(${target} PUBLIC ${headers})
  target_compile_features(${target} PUBLIC cxx_std_20)
  foreach(link IN LISTS target links)
    target_include_directories(${target} PRIVATE ${CONVGRAD_ROOM_HEADERS}/${link}/folder)
  endforeach()
  foreach(link IN LISTS links)
    file(APPEND ${CONVGRAD_ROOM_HEADERS}/arrows.txt "${target} ${link}\n")
  endforeach()
  target_link_libraries(${target} PUBLIC ${links} PRIVATE convgrad_options)
endfunction()

# convgrad_library_room(NAME [LINKS rooms...] [PUBLIC headers...] SOURCES files...)
# A room of src, as objects: libconvgrad.a collects them all, the CUDA module takes some (so they
# may stand in a shared object, and are not seen outside it).
function(convgrad_library_room name)
  cmake_parse_arguments(room "" "" "LINKS;PUBLIC;SOURCES" ${ARGN})
  set(target convgrad_room_${name})
  add_library(${target} OBJECT ${room_SOURCES})
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
  list(TRANSFORM room_LINKS PREPEND convgrad_room_)
  convgrad_room_headers(${target} ${name} "${room_LINKS}" "${room_PUBLIC}")
  target_link_libraries(${target} PUBLIC Threads::Threads)
  target_sources(convgrad PRIVATE $<TARGET_OBJECTS:${target}>)
  if(CONVGRAD_FUZZ)  # what scripts/measure_coverage --short counts, in the build that clang makes anyway
    foreach(source IN LISTS room_SOURCES)
      if("src/${name}/${source}" IN_LIST CONVGRAD_MEASURED_SOURCES)
        set_property(SOURCE ${source}
          APPEND PROPERTY COMPILE_OPTIONS -fprofile-instr-generate -fcoverage-mapping)
      endif()
    endforeach()
  endif()
endfunction()

# convgrad_command_room(NAME [LINKS rooms...] SOURCES files...)
# A room of cmd/convgrad. It may include all of the library.
function(convgrad_command_room name)
  cmake_parse_arguments(room "" "" "LINKS;SOURCES" ${ARGN})
  set(target convgrad_cmd_${name})
  list(TRANSFORM room_SOURCES PREPEND ${name}/)
  add_library(${target} STATIC ${room_SOURCES})
  list(TRANSFORM room_LINKS PREPEND convgrad_cmd_)
  set(CMAKE_CURRENT_SOURCE_DIR ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  convgrad_room_headers(${target} ${name} "${room_LINKS}" "")
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_BINARY_DIR})
  target_link_libraries(${target} PUBLIC convgrad CLI11::CLI11 nlohmann_json::nlohmann_json)
endfunction()

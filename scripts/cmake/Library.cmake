# Brim as a library for other programs, and what `cmake --install` installs:
#
#   bin/trainer, bin/trainrun         lib/libbrim.a, lib/libbrim_cuda.so    include/brim/…
#   lib/cmake/brim/brim-config.cmake  share/brim/recipes, share/brim/configs
#   share/man/man1/trainer*.1         completion for bash, zsh and fish, where they look for it
#
# The component `library` is what a program is built with: headers, libbrim.a, the CMake package.
#
#   brim             every module's code, and trainer's without its main(), in one static library
#   BRIM_ABI_HEADER  recipe/abi.h, made where any header has changed; found under BRIM_GENERATED
#   BRIM_EXPORTS     link options of a program whose Brim a library of parts may use

set(BRIM_GENERATED ${CMAKE_BINARY_DIR}/generated)
set(BRIM_ABI_HEADER ${BRIM_GENERATED}/framework/recipe/abi.h)
set(BRIM_EXPORTS "-Wl,--export-dynamic-symbol=_Z*4brim*")  # all names of namespace brim

file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/framework/*.h ${CMAKE_SOURCE_DIR}/models/*.h)
add_custom_command(OUTPUT ${BRIM_ABI_HEADER} DEPENDS ${headers}
  COMMAND ${CMAKE_COMMAND} -D SOURCE=${CMAKE_SOURCE_DIR} -D OUTPUT=${BRIM_ABI_HEADER}
    -D BRIM=${PROJECT_VERSION} -D TORCH=${BRIM_TORCH_VERSION} -P ${CMAKE_CURRENT_LIST_DIR}/Abi.cmake
  COMMENT "Making recipe/abi.h")
add_custom_target(brim_abi DEPENDS ${BRIM_ABI_HEADER})

function(brim_install)
  get_property(modules GLOBAL PROPERTY BRIM_MODULES)
  get_property(links GLOBAL PROPERTY BRIM_LINKS)
  list(REMOVE_DUPLICATES links)
  list(TRANSFORM modules REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  foreach(module IN LISTS modules)  # objects compiled apart, for one instruction set each
    get_target_property(sources ${module} SOURCES)
    list(FILTER sources INCLUDE REGEX "TARGET_OBJECTS")
    list(APPEND objects ${sources})
  endforeach()
  add_library(brim STATIC ${objects} $<TARGET_OBJECTS:brim_fmt> $<FILTER:$<TARGET_OBJECTS:trainer>,EXCLUDE,/main\\.cpp>)
  set_target_properties(brim PROPERTIES LINKER_LANGUAGE CXX)

  include(CMakePackageConfigHelpers)
  set(package ${CMAKE_BINARY_DIR}/package)
  set(BRIM_LINKS ${links})
  configure_package_config_file(${CMAKE_SOURCE_DIR}/scripts/cmake/brim-config.cmake.in
    ${package}/brim-config.cmake INSTALL_DESTINATION lib/cmake/brim)
  write_basic_package_version_file(${package}/brim-config-version.cmake
    COMPATIBILITY ExactVersion)  # an interface that is not fixed yet
  install(FILES ${package}/brim-config.cmake ${package}/brim-config-version.cmake
    ${CMAKE_SOURCE_DIR}/scripts/cmake/TorchTarget.cmake DESTINATION lib/cmake/brim COMPONENT library)

  install(TARGETS trainer trainrun RUNTIME DESTINATION bin)
  install(TARGETS brim ARCHIVE DESTINATION lib COMPONENT library)
  if(BRIM_WITH_CUDA)
    set_target_properties(brim_cuda PROPERTIES
      INSTALL_RPATH "$ORIGIN/../lib;${BRIM_TORCH_RPATH};${BRIM_CUDART_FOLDER}")
    install(TARGETS brim_cuda LIBRARY DESTINATION lib)
  endif()
  # framework/amp/autocast.h becomes <brim/amp/autocast.h>, also in what headers include.
  install(CODE "set(source \"${CMAKE_SOURCE_DIR}\")\nset(generated \"${BRIM_GENERATED}\")" COMPONENT library)
  install(CODE [[
    foreach(root IN ITEMS ${source}/framework ${source}/models ${generated}/framework)
      file(GLOB_RECURSE headers RELATIVE ${root} ${root}/*.h)
      foreach(header IN LISTS headers)
        set(folder "")
        if(root MATCHES "/models$")
          set(folder models/)
        endif()
        file(READ ${root}/${header} text)
        string(REPLACE "#include \"framework/" "#include \"brim/" text "${text}")
        string(REPLACE "#include \"models/" "#include \"brim/models/" text "${text}")
        file(WRITE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/include/brim/${folder}${header}" "${text}")
      endforeach()
    endforeach()
  ]] COMPONENT library)
  # Its namespace has its version in its name: a program must see the one that libbrim.a saw.
  find_path(BRIM_JSON_INCLUDE nlohmann/json.hpp REQUIRED)
  install(DIRECTORY ${BRIM_JSON_INCLUDE}/nlohmann DESTINATION include/brim COMPONENT library)
  install(DIRECTORY recipes configs DESTINATION share/brim)
  install(CODE [[
    set(share "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share")
    set(trainer "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/bin/trainer")
    file(MAKE_DIRECTORY ${share}/bash-completion/completions ${share}/fish/vendor_completions.d
      ${share}/zsh/site-functions)
    execute_process(COMMAND ${trainer} help --man ${share}/man/man1 COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${trainer} completion bash COMMAND_ERROR_IS_FATAL ANY
      OUTPUT_FILE ${share}/bash-completion/completions/trainer)
    execute_process(COMMAND ${trainer} completion zsh COMMAND_ERROR_IS_FATAL ANY
      OUTPUT_FILE ${share}/zsh/site-functions/_trainer)
    execute_process(COMMAND ${trainer} completion fish COMMAND_ERROR_IS_FATAL ANY
      OUTPUT_FILE ${share}/fish/vendor_completions.d/trainer.fish)
  ]])
endfunction()
